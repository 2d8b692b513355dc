// SPDX-License-Identifier: Apache-2.0
#include "plan/work.hpp"

#include <algorithm>

#include "plan/products.hpp"

namespace finetune::plan {
namespace {

using model::Packing;

/// As model::Ops::loss makes the head's product.
constexpr double loss_chunk_tokens = 1024;

/// Bytes that pass the memory for each element of what a pass makes; `e` of an element as computed,
/// where compositions work in fp32 (4 bytes).
struct PassBytes {
  double norm, norm_backward, rope, swiglu, swiglu_backward, logit, unpacked;
  double operations;  ///< started for one of these

  PassBytes(Passes passes, double e) {
    if (passes == Passes::fused) {
      // Read and write; backward reads the gradient and the input, adds into the residual's.
      norm = 2 * e, norm_backward = 4 * e, rope = 2 * e;
      swiglu = 3 * e, swiglu_backward = 5 * e;
      // Logits: the largest and the sum; the gradient in place.
      logit = 3 * e, unpacked = 0.5 + e, operations = 1;
      return;
    }
    // kernels::composed: casts, squares, products, casts back; each reads and writes.
    norm = 2 * e + 24, norm_backward = 4 * e + 48, rope = 2 * e + 24;
    swiglu = 5 * e, swiglu_backward = 5 * e + 36;
    logit = 3 * e + 20, unpacked = 0.5 + e + 20, operations = 8;
  }
};

class WorkPlan {
 public:
  WorkPlan(const Request& request, const model::ParameterTable& table, const Rates& rates,
           Passes passes)
      : request_(request),
        a_(request.architecture),
        table_(table),
        rates_(rates),
        element_(static_cast<double>(core::size_bytes(request.numbers.compute))),
        bytes_(passes, element_),
        tokens_(static_cast<double>(request.micro_batch * request.max_seq_length)),
        width_(static_cast<double>(a_.d_model)) {}

  MicroBatchWork all() const {
    MicroBatchWork work;
    const auto products = block_products(table_, a_);
    for (std::size_t i = 0; i < products.size(); ++i)
      work.blocks.push_back(block(a_.layer(static_cast<std::int64_t>(i)), products[i]));
    work.embedding = embedding();
    work.head = head();
    return work;
  }

 private:
  bool is_trained(model::Role role) const {
    const auto row = std::find_if(table_.rows.begin(), table_.rows.end(),
                                  [&](const model::Parameter& p) { return p.role == role; });
    return row == table_.rows.end() || row->trainable;
  }

  Work pass(double elements, double bytes, double operations) const {
    return rates_.activations(elements * bytes, operations);
  }

  void add_unpacking(StageWork& work, const Product& product, double copies) const {
    if (!product.is_packed()) return;
    const double elements = copies * static_cast<double>(product.num_inputs * product.num_outputs);
    const Work once = pass(elements, bytes_.unpacked, copies * bytes_.operations);
    work.forward += once;
    work.backward += once;
  }

  /// The low-rank parts beside a product: x A and (x A) B, added to what is there; backward the
  /// gradients of both matrices and of x.
  void add_low_rank(StageWork& work, const Product& product, double tokens, double copies) const {
    if (product.rank == 0) return;
    const auto parts = static_cast<double>(product.num_low_rank);
    const auto rank = static_cast<double>(product.rank);
    const auto in = static_cast<double>(product.num_inputs);
    const double out = static_cast<double>(product.num_outputs) / parts;
    const Work down = rates_.products({tokens, rank, in}, copies);
    const Work up = rates_.products({tokens, out, rank / parts}, copies * parts);
    const Work sum = pass(copies * tokens * out * parts, 2 * element_, copies * parts);
    work.forward += down + up + sum;
    work.backward += 2 * (down + up) + pass(copies * tokens * in, 2 * element_, copies);
    if (request_.adapter_dropout <= 0) return;
    const Work drop = pass(copies * tokens * in, 2 * element_ + 1, copies * bytes_.operations);
    work.forward += drop;
    work.backward += 2 * drop;
  }

  /// `copies` of a product, each with so many tokens.
  void add(StageWork& work, const Product& product, double tokens, double copies = 1) const {
    const auto in = static_cast<double>(product.num_inputs);
    const auto out = static_cast<double>(product.num_outputs);
    if (in * out == 0) return;
    work.forward += rates_.products({tokens, out, in}, copies);
    work.backward += rates_.products({tokens, in, out}, copies);
    if (product.is_trained) work.backward += rates_.products({out, in, tokens}, copies);
    add_low_rank(work, product, tokens, copies);
    add_unpacking(work, product, copies);
  }

  void add_attention(StageWork& work, const model::Layer& layer, double queries) const {
    const double visible = visible_tokens(layer, request_.max_seq_length);
    const double pairs = tokens_ * visible;
    work.forward += rates_.attention(4 * pairs * queries, visible);
    work.backward += rates_.attention(10 * pairs * queries, visible);
  }

  /// Both norms, positions, sums with the residual.
  void add_passes(StageWork& work, const model::Layer& layer, double heads) const {
    const double rotated = layer.rotary == model::Rotary::none ? 0 : tokens_ * heads;
    const Work positions = pass(rotated, bytes_.rope, rotated > 0 ? bytes_.operations : 0);
    const bool has_head_norm = layer.head_norm != model::HeadNorm::none;
    const double normed = tokens_ * (2 * width_ + (has_head_norm ? heads : 0));
    const Work norms = pass(normed, bytes_.norm, 2 * bytes_.operations);
    const Work sums = pass(2 * tokens_ * width_, 3 * element_, 2);
    work.forward += norms + positions + sums;
    work.backward += pass(normed, bytes_.norm_backward, 2 * bytes_.operations) + positions;
    if (request_.activation_checkpointing == ActivationCheckpointing::selective)
      work.again += norms;
  }

  void add_activation(StageWork& work, double elements) const {
    if (elements == 0) return;
    const Work forward = pass(elements, bytes_.swiglu, bytes_.operations / 2);
    work.forward += forward;
    work.backward += pass(elements, bytes_.swiglu_backward, bytes_.operations / 2);
    if (request_.activation_checkpointing == ActivationCheckpointing::selective)
      work.again += forward;
  }

  /// Each of `num` gets its share of the tokens' choices; those are copied there and back.
  void add_experts(StageWork& work, const Product& of_one) const {
    const model::Experts& e = a_.experts;
    const double choices = tokens_ * static_cast<double>(e.top_k);
    const double active = std::min(static_cast<double>(e.num), choices);
    Product gate_up = of_one, down = of_one;
    gate_up.num_inputs = down.num_outputs = a_.d_model;
    gate_up.num_outputs = 2 * e.d_ff;
    down.num_inputs = e.d_ff;
    add(work, gate_up, choices / active, active);
    add(work, down, choices / active, active);
    add_activation(work, choices * static_cast<double>(e.d_ff));
    const Product router{.num_inputs = a_.d_model, .num_outputs = e.num};
    add(work, router, tokens_);
    const Work copies = pass(choices * width_, 4 * element_, 2 * bytes_.operations);
    work.forward += copies;
    work.backward += copies;
  }

  StageWork block(const model::Layer& layer, const BlockProducts& products) const {
    StageWork work;
    add(work, products.qkv, tokens_);
    add(work, products.attention_out, tokens_);
    add(work, products.gate_up, tokens_);
    add(work, products.down, tokens_);
    const auto queries = static_cast<double>(a_.num_heads * a_.head_size);
    const auto heads = static_cast<double>((a_.num_heads + a_.num_kv_heads) * a_.head_size);
    add_attention(work, layer, queries);
    add_passes(work, layer, heads);
    add_activation(work, tokens_ * static_cast<double>(products.down.num_inputs));
    if (layer.has_experts) add_experts(work, products.expert);
    if (request_.activation_checkpointing == ActivationCheckpointing::full)
      work.again = work.forward;
    return work;
  }

  StageWork embedding() const {
    StageWork work;
    work.forward = pass(tokens_ * width_, 2 * element_, 1);
    if (is_trained(model::Role::embedding))
      work.backward = pass(tokens_ * width_, 2 * element_ + 8, bytes_.operations);
    return work;
  }

  /// In chunks of tokens; the gradient of the logits is made beside them.
  StageWork head() const {
    const auto vocabulary = static_cast<double>(a_.vocab_size);
    const double chunk = std::min(tokens_, loss_chunk_tokens), chunks = tokens_ / chunk;
    StageWork work;
    work.forward = rates_.products({chunk, vocabulary, width_}, chunks) +
                   pass(tokens_ * vocabulary, bytes_.logit, chunks * bytes_.operations) +
                   pass(tokens_ * width_, bytes_.norm, bytes_.operations);
    work.backward = rates_.products({chunk, width_, vocabulary}, chunks) +
                    pass(tokens_ * width_, bytes_.norm_backward, bytes_.operations);
    if (is_trained(a_.tied_embeddings ? model::Role::embedding : model::Role::head))
      work.backward += rates_.products({vocabulary, width_, chunk}, chunks);
    return work;
  }

  const Request& request_;
  const model::Architecture& a_;
  const model::ParameterTable& table_;
  const Rates& rates_;
  double element_;
  PassBytes bytes_;
  double tokens_;
  double width_;
};

}  // namespace

Work MicroBatchWork::total() const {
  Work sum = embedding.forward + embedding.backward + head.forward + head.backward;
  for (const StageWork& block : blocks)
    sum += block.forward + block.backward + block.again;
  return sum;
}

double MicroBatchWork::model_flops() const {
  double sum = head.forward.flops + head.backward.flops;
  for (const StageWork& block : blocks)
    sum += block.forward.flops + block.backward.flops;
  return sum;
}

MicroBatchWork plan_work(const Request& request, const model::ParameterTable& table,
                         const Rates& rates, Passes passes) {
  return WorkPlan(request, table, rates, passes).all();
}

double visible_tokens(const model::Layer& layer, std::int64_t length) {
  const auto l = static_cast<double>(length);
  if (layer.chunk > 0 && layer.chunk < length) {
    const auto chunk = static_cast<double>(layer.chunk);
    return (chunk + 1) / 2;
  }
  if (layer.window > 0 && layer.window < length) {
    // The first tokens see all before them, the others the window.
    const auto window = static_cast<double>(layer.window);
    return (window * (window + 1) / 2 + (l - window) * window) / l;
  }
  return (l + 1) / 2;
}

}  // namespace finetune::plan
