// SPDX-License-Identifier: Apache-2.0
#include "plan/activations.hpp"

#include <algorithm>

namespace finetune::plan {
namespace {

/// As model::Ops::loss makes the head's product.
constexpr std::int64_t tokens_a_chunk = 1024;
constexpr std::int64_t float_bytes = 4;
constexpr std::int64_t index_bytes = 8;

/// Kernels know fp32 and bf16 on the CPU; the rest is put together from ATen's functions, in fp32.
bool is_composed(const Request& request) {
  return request.on_gpu || request.numbers.compute == core::DType::f16;
}

/// Sizes of a block's tensors a token, in bytes of the computation's dtype.
struct Widths {
  Widths(const Request& request, const model::Layer& layer) {
    const model::Architecture& a = request.architecture;
    const std::int64_t element = core::size_bytes(request.numbers.compute);
    model = element * a.d_model;
    queries = element * a.num_heads * a.head_size;
    const std::int64_t keys = element * a.num_kv_heads * a.head_size;
    qkv = queries + 2 * keys;
    // Both norms' 1 / rms, and the logarithm of each head's sum of exponentials.
    statistics = float_bytes * (2 + a.num_heads);
    if (layer.head_norm != model::HeadNorm::none)
      head_norm = queries + keys + float_bytes * (a.num_heads + a.num_kv_heads);
    has_band = layer.window > 0 && layer.window < request.max_seq_length;
    float_qkv = qkv / element * float_bytes;
    has_experts = layer.has_experts;
    feed_forward = element * (has_experts ? a.experts.d_shared : a.d_ff);
    if (has_experts) add_experts(a.experts, element);
    if (is_composed(request)) composed_swiglu = 7 * float_bytes * (feed_forward + expert) / element;
  }

  void add_experts(const model::Experts& experts, std::int64_t element) {
    copies = experts.top_k * model;
    expert = experts.top_k * element * experts.d_ff;
    // Sums of products are made in fp32.
    if (element < float_bytes) float_expert = experts.top_k * float_bytes * experts.d_ff;
    // Probabilities; of each choice its number, weight and place.
    routing = float_bytes * experts.num + experts.top_k * (2 * index_bytes + float_bytes);
  }

  std::int64_t model = 0, queries = 0, qkv = 0, feed_forward = 0, statistics = 0;
  std::int64_t head_norm = 0;  ///< queries and keys as they were before their norm
  bool has_band = false;       ///< attends piece by piece: keys' gradients are added in fp32
  std::int64_t float_qkv = 0;
  bool has_experts = false;
  std::int64_t copies = 0;  ///< of a token, one for each expert it takes
  std::int64_t expert = 0;  ///< their feed-forward width together
  std::int64_t float_expert = 0;
  std::int64_t routing = 0;
  /// fp32 temporaries of kernels::composed::swiglu_backward.
  std::int64_t composed_swiglu = 0;

  /// What autograd keeps of a block: its input, the first norm's output, q k v, attention's output,
  /// the sum after attention, the second norm's output, gate and up, and their product.
  std::int64_t all() const {
    return 4 * model + qkv + queries + head_norm + 3 * (feed_forward + expert) + routing +
           statistics;
  }
  /// Without what is cheap to make again: norms' outputs and the products of gate and up. Experts
  /// read their norm's output as it is.
  std::int64_t selected() const {
    return all() - (has_experts ? 1 : 2) * model - feed_forward - expert;
  }
};

std::int64_t kept_by_block(const Widths& w, ActivationCheckpointing mode) {
  switch (mode) {
    case ActivationCheckpointing::full:
      return w.model;
    case ActivationCheckpointing::selective:
      return w.selected();
    default:
      return w.all();
  }
}

/// The most that the backward pass of experts holds at once: gradients of their outputs with and
/// without the choices' weights, or those of gate and up with the copies of the tokens.
std::int64_t at_experts(const Widths& w, bool recomputes) {
  const std::int64_t again = recomputes ? w.expert : 0;
  return std::max({2 * w.copies + 2 * w.expert + w.float_expert + again, 3 * w.expert + again,
                   2 * w.expert + 2 * w.copies, 2 * w.copies + 2 * w.model});
}

/// The most that backward of a block holds besides what the blocks before it and itself keep: a
/// block's input is kept in any case; what it no longer needs is freed on the way.
std::int64_t backward_of_block(const Widths& w, ActivationCheckpointing mode) {
  const bool recomputes = mode == ActivationCheckpointing::selective;
  // The block's output, and its gradient.
  std::int64_t base = 2 * w.model;
  if (mode == ActivationCheckpointing::full) base += w.all() - w.model;
  // Gradients of the product and of gate and up meet at the activation function.
  std::int64_t at_activation = 3 * w.feed_forward + w.composed_swiglu;
  if (w.has_experts) at_activation = std::max(at_activation, at_experts(w, recomputes));
  // Gradients of attention's output and of q, k and v, which are then joined into one tensor;
  // everything of the feed-forward half is freed.
  const std::int64_t of_feed_forward = (recomputes ? 2 : 3) * (w.feed_forward + w.expert) +
                                       w.routing + (recomputes && !w.has_experts ? 1 : 2) * w.model;
  const std::int64_t joined = w.has_band ? w.float_qkv + w.qkv : w.queries + 2 * w.qkv;
  const std::int64_t at_attention = w.model + joined - of_feed_forward;
  return base + std::max({at_activation, at_attention, std::int64_t{0}});
}

/// The last block's output, its norm, the gradient of that, and the logits of a chunk.
std::int64_t head(const Widths& w, const Request& request, std::int64_t tokens) {
  // A composition makes the softmax beside the logits.
  const std::int64_t element =
      core::size_bytes(request.numbers.compute) + (is_composed(request) ? float_bytes : 0);
  const std::int64_t logits =
      element * std::min(tokens, tokens_a_chunk) * request.architecture.vocab_size;
  return tokens * (3 * w.model + float_bytes) + logits;
}

/// Ids, labels, positions, and the places of the trained ones; the rotary tables.
std::int64_t sequence_bytes(const Request& request, std::int64_t tokens) {
  return 4 * index_bytes * tokens +
         float_bytes * request.architecture.head_size * request.max_seq_length;
}

}  // namespace

ActivationBytes plan_activations(const Request& request) {
  const model::Architecture& a = request.architecture;
  const ActivationCheckpointing mode = request.activation_checkpointing;
  // Backward of a block runs while those before it wait for theirs.
  std::int64_t kept = 0, most = 0;
  for (std::int64_t i = 0; i < a.num_layers; ++i) {
    const Widths w(request, a.layer(i));
    kept += kept_by_block(w, mode);
    most = std::max(most, kept + backward_of_block(w, mode));
  }
  const std::int64_t tokens = request.micro_batch * request.max_seq_length;
  const std::int64_t at_block = tokens * (most - kept);
  const std::int64_t at_head = head(Widths(request, {}), request, tokens);
  ActivationBytes bytes;
  bytes.kept = tokens * kept;
  bytes.worst_is_head = at_head > at_block;
  bytes.in_flight = std::max(at_head, at_block) + sequence_bytes(request, tokens);
  return bytes;
}

}  // namespace finetune::plan
