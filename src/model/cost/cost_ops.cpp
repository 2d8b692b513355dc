// SPDX-License-Identifier: Apache-2.0
#include "model/cost/cost_ops.hpp"

#include <algorithm>

namespace finetune::model {
namespace {

constexpr std::int64_t int64_bytes = 8;

/// fp32 temporaries of kernels::composed::swiglu_backward.
std::int64_t composed_swiglu_bytes(const CostSettings& settings, std::int64_t elements) {
  return settings.is_composed ? 7 * fp32_bytes * elements : 0;
}

}  // namespace

CostOps::CostOps(const ParameterTable& table, const CostSettings& settings)
    : table_(table),
      settings_(settings),
      element_(core::size_bytes(settings.compute)),
      bytes_(pass_bytes(settings)) {}

TensorSize CostOps::tensor(std::int64_t rows, std::int64_t columns) {
  return tape_.tensor(rows, columns, element_);
}

MemoryPass CostOps::pass(std::int64_t elements, double bytes_per_element, double operations) const {
  return {static_cast<double>(elements) * bytes_per_element, operations};
}

void CostOps::add_projection(OpCost& op, const ProjectionCost& projection) const {
  op.kept.insert(op.kept.end(), projection.kept.begin(), projection.kept.end());
  op.forward.push_back(projection.forward);
  op.backward.push_back(projection.backward);
  op.forward_work.add(projection.forward_work);
  op.backward_work.add(projection.backward_work);
}

TensorSize CostOps::embedding(const TensorSize& ids_N, int row) {
  const TensorSize x = tensor(ids_N.rows, table_.row(row).shape[1]);
  OpCost op{.inputs = {ids_N}, .forward = {{x.bytes}}, .outputs = {x.number}};
  const std::int64_t elements = x.rows * x.columns;
  const auto element = static_cast<double>(element_);
  op.forward_work.passes = {pass(elements, 2 * element, 1)};
  if (table_.row(row).trainable)
    op.backward_work.passes = {pass(elements, 2 * element + 8, bytes_.operations)};
  tape_.record(std::move(op));
  return x;
}

TensorSize CostOps::linear(const TensorSize& x_ND, RowRange rows) {
  const ProjectionShape shape = projection_shape(table_, rows);
  const TensorSize y = tensor(x_ND.rows, shape.num_outputs);
  OpCost op{.inputs = {x_ND}, .gradients = {{x_ND.number, x_ND.bytes}}, .outputs = {y.number}};
  if (shape.needs_input()) op.kept = {x_ND};
  add_projection(op, projection_cost(shape, settings_, x_ND.rows, tape_));
  tape_.record(std::move(op));
  return y;
}

OpCost CostOps::norm_cost(const TensorSize& x_ND) const {
  OpCost op;
  const std::int64_t elements = x_ND.rows * x_ND.columns;
  op.forward_work.passes = {pass(elements, bytes_.norm, bytes_.operations)};
  op.backward_work.passes = {pass(elements, bytes_.norm_backward, bytes_.operations)};
  return op;
}

TensorSize CostOps::rms_norm(const TensorSize& x_ND, int, double) {
  const TensorSize y = tensor(x_ND.rows, x_ND.columns);
  OpCost op = norm_cost(x_ND);
  op.inputs = {x_ND};
  op.kept = {x_ND, tape_.tensor(x_ND.rows, 1, fp32_bytes)};
  op.forward = op.backward = {{x_ND.bytes}};
  op.gradients = {{x_ND.number, x_ND.bytes}};
  op.outputs = {y.number};
  tape_.record(std::move(op));
  return y;
}

std::pair<TensorSize, TensorSize> CostOps::add_rms_norm(const TensorSize& x_ND,
                                                        const TensorSize& residual_ND, int,
                                                        double) {
  const TensorSize h = tensor(x_ND.rows, x_ND.columns), y = tensor(x_ND.rows, x_ND.columns);
  OpCost op = norm_cost(x_ND);
  op.inputs = {x_ND, residual_ND};
  op.kept = {h, tape_.tensor(x_ND.rows, 1, fp32_bytes)};
  op.forward = {{y.bytes}};
  op.backward = {{x_ND.bytes}};
  op.gradients = {{residual_ND.number, residual_ND.bytes}, {x_ND.number, 0}};
  op.outputs = {h.number, y.number};
  op.forward_work.passes.push_back(pass(h.rows * h.columns, 3 * static_cast<double>(element_), 1));
  tape_.record(std::move(op));
  return {h, y};
}

OpCost CostOps::norm_linear_cost(const TensorSize& h_ND, const ProjectionShape& shape) {
  const TensorSize normed = tensor(h_ND.rows, h_ND.columns);
  OpCost op = norm_cost(h_ND);
  const bool computes_again = settings_.recompute == Recompute::cheap;
  if (computes_again) op.again_work = op.forward_work;
  op.kept = {h_ND, tape_.tensor(h_ND.rows, 1, fp32_bytes)};
  add_projection(op, projection_cost(shape, settings_, h_ND.rows, tape_));
  keep_or_compute_again(op, normed, shape.needs_input());
  // The gradients of the norm's output and of its input.
  op.backward.push_back({2 * normed.bytes});
  return op;
}

/// `between` is what a product reads and nobody else: kept for its backward if that needs it.
void CostOps::keep_or_compute_again(OpCost& op, const TensorSize& between, bool is_needed) const {
  if (is_needed && settings_.recompute == Recompute::nothing) {
    op.kept.push_back(between);
    return;
  }
  op.forward.front().bytes += between.bytes;
  if (is_needed) op.backward.front().bytes += between.bytes;
}

TensorSize CostOps::norm_linear(const TensorSize& x_ND, int, RowRange rows, double) {
  const ProjectionShape shape = projection_shape(table_, rows);
  const TensorSize y = tensor(x_ND.rows, shape.num_outputs);
  OpCost op = norm_linear_cost(x_ND, shape);
  op.inputs = {x_ND};
  op.gradients = {{x_ND.number, x_ND.bytes}};
  op.outputs = {y.number};
  tape_.record(std::move(op));
  return y;
}

std::pair<TensorSize, TensorSize> CostOps::add_norm_linear(const TensorSize& x_ND,
                                                           const TensorSize& residual_ND, int,
                                                           RowRange rows, double) {
  const ProjectionShape shape = projection_shape(table_, rows);
  const TensorSize h = tensor(x_ND.rows, x_ND.columns);
  const TensorSize y = tensor(x_ND.rows, shape.num_outputs);
  OpCost op = norm_linear_cost(h, shape);
  op.inputs = {x_ND, residual_ND};
  op.gradients = {{residual_ND.number, residual_ND.bytes}, {x_ND.number, 0}};
  op.outputs = {h.number, y.number};
  op.forward_work.passes.push_back(pass(h.rows * h.columns, 3 * static_cast<double>(element_), 1));
  tape_.record(std::move(op));
  return {h, y};
}

TensorSize CostOps::add_bias(const TensorSize& x_NF, RowRange) {
  OpCost op{.inputs = {x_NF}};
  const auto element = static_cast<double>(element_);
  op.forward_work.passes = {pass(x_NF.rows * x_NF.columns, 2 * element, 1)};
  op.backward_work.passes = {pass(x_NF.rows * x_NF.columns, element, 1)};
  tape_.record(std::move(op));
  return x_NF;
}

TensorSize CostOps::head_norm(const TensorSize& qkv, const AttentionShape& shape, int, int,
                              double) {
  const std::int64_t heads = shape.num_heads + shape.num_kv_heads;
  const TensorSize normed = tensor(qkv.rows, qkv.columns);
  const TensorSize before = tensor(qkv.rows, heads * shape.head_size);
  OpCost op = norm_cost(before);
  op.inputs = {qkv};
  // Queries and keys as they were.
  op.kept = {before, tape_.tensor(qkv.rows, heads, fp32_bytes)};
  op.forward = {{before.bytes + normed.bytes}};
  op.backward = {{before.bytes + qkv.bytes}};
  op.gradients = {{qkv.number, qkv.bytes}};
  op.outputs = {normed.number};
  tape_.record(std::move(op));
  return normed;
}

TensorSize CostOps::tune_temperature(const TensorSize& qkv, const AttentionShape& shape,
                                     const SequenceSize&, const Temperature&) {
  OpCost op{.inputs = {qkv}};
  const std::int64_t elements = qkv.rows * shape.num_heads * shape.head_size;
  op.forward_work.passes = {pass(elements, 2 * static_cast<double>(element_), 1)};
  op.backward_work = op.forward_work;
  tape_.record(std::move(op));
  return qkv;
}

TensorSize CostOps::attention(const TensorSize& qkv, const AttentionShape& shape,
                              const SequenceSize& sequence, std::int64_t) {
  const TensorSize out = tensor(qkv.rows, shape.num_heads * shape.head_size);
  OpCost op{.inputs = {qkv}, .outputs = {out.number}};
  // And the logarithm of each head's sum of exponentials.
  op.kept = {qkv, out, tape_.tensor(qkv.rows, shape.num_heads, fp32_bytes)};
  op.forward = {BytesHeld{}};
  // Gradients of q, k and v, which are then joined into one tensor. Piece by piece, where a key's
  // gradient comes in parts, they are added in fp32.
  const bool has_band = shape.window > 0 && shape.window < sequence.length;
  op.backward = {{has_band ? qkv.bytes / element_ * fp32_bytes + qkv.bytes : 2 * qkv.bytes}};
  op.gradients = {{qkv.number, qkv.bytes}};

  const double visible = visible_tokens(shape, sequence.length);
  const double channels = static_cast<double>(qkv.rows) * visible *
                          static_cast<double>(shape.num_heads * shape.head_size);
  op.forward_work.attention = {{4 * channels, visible}};
  op.backward_work.attention = {{10 * channels, visible}};
  if (shape.rotary != Rotary::none) {
    const std::int64_t rotated =
        qkv.rows * (shape.num_heads + shape.num_kv_heads) * shape.head_size;
    op.forward_work.passes = {pass(rotated, bytes_.rope, bytes_.operations)};
    op.backward_work.passes = op.forward_work.passes;
  }
  tape_.record(std::move(op));
  return out;
}

void CostOps::add_swiglu_work(OpCost& op, std::int64_t elements) const {
  op.forward_work.passes.push_back(pass(elements, bytes_.swiglu, bytes_.operations / 2));
  if (settings_.recompute == Recompute::cheap)
    op.again_work.passes.push_back(op.forward_work.passes.back());
  op.backward_work.passes.push_back(pass(elements, bytes_.swiglu_backward, bytes_.operations / 2));
}

TensorSize CostOps::swiglu_linear(const TensorSize& gate_up, RowRange rows) {
  const ProjectionShape shape = projection_shape(table_, rows);
  const TensorSize activated = tensor(gate_up.rows, gate_up.columns / 2);
  const TensorSize y = tensor(gate_up.rows, shape.num_outputs);
  OpCost op{.inputs = {gate_up}, .kept = {gate_up}, .outputs = {y.number}};
  op.gradients = {{gate_up.number, gate_up.bytes}};
  const std::int64_t elements = activated.rows * activated.columns;
  add_swiglu_work(op, elements);
  add_projection(op, projection_cost(shape, settings_, gate_up.rows, tape_));
  keep_or_compute_again(op, activated, shape.needs_input());
  // Gradients of the product and of gate and up meet at the activation function.
  op.backward.push_back(
      {activated.bytes + gate_up.bytes + composed_swiglu_bytes(settings_, elements)});
  tape_.record(std::move(op));
  return y;
}

/// The most that experts hold at once. Forward: copies of the tokens and of their outputs.
/// Backward: gradients of their outputs with and without the choices' weights, or those of gate and
/// up with the copies of the tokens.
void CostOps::add_expert_moments(OpCost& op, const TensorSize& x_ND, const Experts& experts,
                                 std::int64_t unpacked) const {
  const std::int64_t copies = experts.top_k * x_ND.bytes;
  const std::int64_t elements = x_ND.rows * experts.top_k * experts.d_ff;
  const std::int64_t activated = elements * element_;
  const bool computes_again = settings_.recompute == Recompute::cheap;
  const std::int64_t again = computes_again ? activated : 0;
  // Sums of products are computed in fp32.
  const std::int64_t in_fp32 = element_ < fp32_bytes ? elements * fp32_bytes : 0;
  op.forward = {{2 * copies + again + x_ND.bytes, unpacked}};
  op.backward = {{2 * copies + 2 * activated + in_fp32 + again, unpacked},
                 {3 * activated + again, unpacked},
                 {2 * activated + 2 * copies, unpacked},
                 {2 * copies + 2 * x_ND.bytes, unpacked},
                 {3 * activated + composed_swiglu_bytes(settings_, elements)}};
}

TensorSize CostOps::experts(const TensorSize& x_ND, const ExpertRows& rows, const Experts& experts,
                            const SequenceSize&) {
  const TensorSize y = tensor(x_ND.rows, x_ND.columns);
  const ProjectionShape gate_up = expert_shape(table_, rows.gate_up);
  const ProjectionShape down = expert_shape(table_, {rows.down, 1});
  const std::int64_t choices = x_ND.rows * experts.top_k;
  OpCost op{.inputs = {x_ND}, .outputs = {y.number}};
  op.gradients = {{x_ND.number, x_ND.bytes}};
  // Probabilities; of each choice its number, weight and place.
  const std::int64_t routing =
      x_ND.rows * (fp32_bytes * experts.num + experts.top_k * (2 * int64_bytes + fp32_bytes));
  op.kept = {x_ND, tape_.tensor(1, routing, 1), tensor(choices, 2 * experts.d_ff)};
  if (settings_.recompute == Recompute::nothing) op.kept.push_back(tensor(choices, experts.d_ff));
  add_expert_moments(op, x_ND, experts,
                     std::max(unpacked_bytes(gate_up, settings_), unpacked_bytes(down, settings_)));

  // Each of `active` experts gets its share of the choices; tokens are copied there and back.
  const double active = static_cast<double>(std::min(experts.num, choices));
  const double share = static_cast<double>(choices) / active;
  for (const ProjectionShape& shape : {gate_up, down})
    add_projection_work(shape, settings_, share, active, op.forward_work, op.backward_work);
  add_swiglu_work(op, choices * experts.d_ff);
  add_projection_work(projection_shape(table_, {rows.router, 1}), settings_,
                      static_cast<double>(x_ND.rows), 1, op.forward_work, op.backward_work);
  const MemoryPass copies =
      pass(choices * x_ND.columns, 4 * static_cast<double>(element_), 2 * bytes_.operations);
  op.forward_work.passes.push_back(copies);
  op.backward_work.passes.push_back(copies);
  tape_.record(std::move(op));
  return y;
}

TensorSize CostOps::add(const TensorSize& x_ND, const TensorSize& y_ND) {
  const TensorSize sum = tensor(x_ND.rows, x_ND.columns);
  OpCost op{.inputs = {x_ND, y_ND},
            .forward = {{sum.bytes}},
            .gradients = {{x_ND.number, 0}, {y_ND.number, 0}},
            .outputs = {sum.number}};
  op.forward_work.passes = {pass(sum.rows * sum.columns, 3 * static_cast<double>(element_), 1)};
  tape_.record(std::move(op));
  return sum;
}

Scores<TensorSize> CostOps::pull_back_label_scores(const TensorSize& x_ND, const TensorSize&,
                                                   int row, const TensorSize&, TensorSize&) {
  const Parameter& weight = table_.row(row);
  const std::int64_t chunk = std::min(x_ND.rows, head_chunk_tokens);
  const auto tokens = static_cast<double>(chunk);
  const double chunks = static_cast<double>(x_ND.rows) / tokens;
  const auto vocabulary = static_cast<double>(weight.shape[0]);
  const auto width = static_cast<double>(weight.shape[1]);
  OpCost op{.inputs = {x_ND}};
  // The gradient of x, and a chunk's logits; a composition writes the softmax next to them.
  const std::int64_t of_logit = element_ + (settings_.is_composed ? fp32_bytes : 0);
  op.forward = {{x_ND.bytes + of_logit * chunk * weight.shape[0]}};
  op.forward_work.products = {{tokens, vocabulary, width, chunks}};
  op.forward_work.passes = {
      pass(x_ND.rows * weight.shape[0], bytes_.logit, chunks * bytes_.operations)};
  op.backward_work.products = {{tokens, width, vocabulary, chunks}};
  if (weight.trainable) op.backward_work.products.push_back({vocabulary, width, tokens, chunks});
  tape_.record(std::move(op));
  // A few bytes per token, next to thousands.
  return {};
}

double visible_tokens(const AttentionShape& shape, std::int64_t length) {
  const auto l = static_cast<double>(length);
  if (shape.chunk > 0 && shape.chunk < length) return (static_cast<double>(shape.chunk) + 1) / 2;
  if (shape.window > 0 && shape.window < length) {
    // The first tokens see all before them, the others the window.
    const auto window = static_cast<double>(shape.window);
    return (window * (window + 1) / 2 + (l - window) * window) / l;
  }
  return (l + 1) / 2;
}

}  // namespace finetune::model
