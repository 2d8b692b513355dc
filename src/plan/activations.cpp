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
  explicit Widths(const Request& request) {
    const model::Architecture& a = request.architecture;
    const std::int64_t element = core::size_bytes(request.numbers.compute);
    model = element * a.d_model;
    queries = element * a.num_heads * a.head_size;
    qkv = queries + 2 * element * a.num_kv_heads * a.head_size;
    feed_forward = element * a.d_ff;
    // Both norms' 1 / rms, and the logarithm of each head's sum of exponentials.
    statistics = float_bytes * (2 + a.num_heads);
    if (is_composed(request)) composed_swiglu = 7 * float_bytes * a.d_ff;
  }
  std::int64_t model, queries, qkv, feed_forward, statistics;
  /// fp32 temporaries of kernels::composed::swiglu_backward.
  std::int64_t composed_swiglu = 0;

  /// What autograd keeps of a block: its input, the first norm's output, q k v, attention's output,
  /// the sum after attention, the second norm's output, gate and up, and their product.
  std::int64_t all() const { return 4 * model + qkv + queries + 3 * feed_forward + statistics; }
  /// Without what is cheap to make again: both norms' outputs and the product of gate and up.
  std::int64_t selected() const { return all() - 2 * model - feed_forward; }
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

/// The most that backward of the last block holds besides what all blocks keep: a block's input
/// is kept in any case; what it no longer needs is freed on the way.
std::int64_t backward_of_block(const Widths& w, ActivationCheckpointing mode) {
  const bool recomputes = mode == ActivationCheckpointing::selective;
  // The block's output, and its gradient.
  std::int64_t base = 2 * w.model;
  if (mode == ActivationCheckpointing::full) base += w.all() - w.model;
  // Gradients of the product and of gate and up meet at the activation function.
  const std::int64_t at_activation = 3 * w.feed_forward + w.composed_swiglu;
  // Gradients of attention's output and of q, k and v, which are then joined into one tensor;
  // everything of the feed-forward half is freed.
  const std::int64_t freed =
      recomputes ? 2 * w.feed_forward + w.model : 3 * w.feed_forward + 2 * w.model;
  const std::int64_t at_attention = w.model + w.queries + 2 * w.qkv - freed;
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
  const Widths w(request);
  const std::int64_t tokens = request.micro_batch * request.max_seq_length;
  const std::int64_t at_block = tokens * backward_of_block(w, request.activation_checkpointing);
  const std::int64_t at_head = head(w, request, tokens);
  ActivationBytes bytes;
  bytes.kept =
      tokens * request.architecture.num_layers * kept_by_block(w, request.activation_checkpointing);
  bytes.worst_is_head = at_head > at_block;
  bytes.in_flight = std::max(at_head, at_block) + sequence_bytes(request, tokens);
  return bytes;
}

}  // namespace finetune::plan
