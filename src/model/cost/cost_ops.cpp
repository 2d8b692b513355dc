// SPDX-License-Identifier: Apache-2.0
#include "model/cost/cost_ops.hpp"

#include <algorithm>

namespace finetune::model {

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

std::int64_t CostOps::own_tokens(std::int64_t tokens) const {
  return (tokens + settings_.share.place.tp - 1) / settings_.share.place.tp;
}

std::int64_t CostOps::all_tokens(std::int64_t own) const {
  return own * settings_.share.place.tp;
}

Travel CostOps::travel(Sharers among, Travel::Kind kind, std::int64_t bytes) const {
  return {.among = among, .kind = kind, .bytes = static_cast<double>(bytes)};
}

bool CostOps::sums_outputs(RowRange rows) const {
  const auto& split = table_.row(rows.first).split;
  return shares_tokens() && split && split->dim == 1;
}

/// Others are whole on every rank, which computes with its own tokens.
bool CostOps::gathers_inputs(RowRange rows) const {
  const auto& split = table_.row(rows.first).split;
  return shares_tokens() && split && split->dim == 0;
}

/// The input of a product of matrices that are split by their outputs: own tokens, of which all are
/// gathered, in backward once more if the weights need them. Their gradient's sum leaves beside the
/// product with the weights' gradient; an adapter reads the one and adds to the other.
void CostOps::gather_inputs(OpCost& op, const TensorSize& x_nD,
                            const ProjectionShape& shape) const {
  if (!shares_tokens()) return;
  const std::int64_t whole = all_tokens(x_nD.rows) * x_nD.columns * element_;
  op.forward.front().bytes += whole;
  op.backward.front().bytes += x_nD.bytes + (shape.needs_input() ? whole : 0);
  op.forward_work.travels.push_back(travel(Sharers::tp, Travel::Kind::all_gather, whole));
  Travel gather = travel(Sharers::tp, Travel::Kind::all_gather, whole);
  Travel scatter = travel(Sharers::tp, Travel::Kind::reduce_scatter, whole);
  if (shape.adapted.empty() && shape.is_trained) {
    const auto tokens = static_cast<double>(all_tokens(x_nD.rows));
    const auto in = static_cast<double>(shape.num_inputs);
    const auto out = static_cast<double>(shape.num_outputs);
    gather.beside_products = {{tokens, in, out}};
    scatter.beside_products = {{out, in, tokens}};
  }
  if (shape.needs_input()) op.backward_work.travels.push_back(std::move(gather));
  op.backward_work.travels.push_back(std::move(scatter));
}

/// The output of a product of matrices that are split by their inputs: terms of all tokens, whose
/// sums each rank gets of its own.
void CostOps::scatter_outputs(OpCost& op, const TensorSize& y_nD) const {
  if (!shares_tokens()) return;
  const std::int64_t whole = all_tokens(y_nD.rows) * y_nD.columns * element_;
  op.forward.front().bytes += y_nD.bytes;
  op.backward.front().bytes += whole;
  op.forward_work.travels.push_back(travel(Sharers::tp, Travel::Kind::reduce_scatter, whole));
  op.backward_work.travels.push_back(travel(Sharers::tp, Travel::Kind::all_gather, whole));
}

TensorSize CostOps::linear(const TensorSize& x_ND, RowRange rows) {
  const ProjectionShape shape = projection_shape(table_, rows);
  const bool sums = sums_outputs(rows);
  const bool gathers = gathers_inputs(rows);
  const std::int64_t tokens = gathers ? all_tokens(x_ND.rows) : x_ND.rows;
  const TensorSize y = tensor(sums ? own_tokens(tokens) : tokens, shape.num_outputs);
  OpCost op{.inputs = {x_ND}, .gradients = {{x_ND.number, x_ND.bytes}}, .outputs = {y.number}};
  if (shape.needs_input()) op.kept = {x_ND};
  add_projection(op, projection_cost(shape, settings_, tokens, tape_));
  if (sums)
    scatter_outputs(op, y);
  else if (gathers)
    gather_inputs(op, x_ND, shape);
  tape_.record(std::move(op));
  return y;
}

/// Norms that take the mean off are put together from operations, in fp32: about six numbers an
/// element are written on the way there, and ten on the way back.
OpCost CostOps::norm_cost(const TensorSize& x_ND, const Norm& norm) const {
  OpCost op;
  const std::int64_t elements = x_ND.rows * x_ND.columns;
  const double fp32 = norm.kind.is_centred ? 2.0 * fp32_bytes : 0;
  const double operations = norm.kind.is_centred ? 8 : bytes_.norm_operations;
  op.forward_work.passes = {pass(elements, bytes_.norm + 6 * fp32, operations)};
  op.backward_work.passes = {pass(elements, bytes_.norm_backward + 10 * fp32, operations)};
  return op;
}

TensorSize CostOps::statistics(std::int64_t rows, const Norm& norm) {
  return tape_.tensor(rows, norm.kind.is_centred ? 2 : 1, fp32_bytes);
}

/// In fp32, next to the input and the output of a norm that takes the mean off; in backward next to
/// two gradients.
std::int64_t CostOps::norm_temporaries(const TensorSize& x_ND, const Norm& norm) const {
  if (!norm.kind.is_centred) return 0;
  const std::int64_t bytes = element_ < fp32_bytes ? 5 * fp32_bytes + element_ : 4 * fp32_bytes;
  return bytes * x_ND.rows * x_ND.columns;
}

TensorSize CostOps::norm(const TensorSize& x_ND, const Norm& norm) {
  const TensorSize y = tensor(x_ND.rows, x_ND.columns);
  OpCost op = norm_cost(x_ND, norm);
  op.inputs = {x_ND};
  op.kept = {x_ND, statistics(x_ND.rows, norm)};
  op.forward = op.backward = {{x_ND.bytes + norm_temporaries(x_ND, norm)}};
  op.gradients = {{x_ND.number, x_ND.bytes}};
  op.outputs = {y.number};
  tape_.record(std::move(op));
  return y;
}

std::pair<TensorSize, TensorSize> CostOps::add_norm(const TensorSize& x_ND,
                                                    const TensorSize& residual_ND,
                                                    const Norm& norm) {
  const TensorSize h = tensor(x_ND.rows, x_ND.columns), y = tensor(x_ND.rows, x_ND.columns);
  OpCost op = norm_cost(x_ND, norm);
  op.inputs = {x_ND, residual_ND};
  op.kept = {h, statistics(x_ND.rows, norm)};
  op.forward = {{y.bytes + norm_temporaries(x_ND, norm)}};
  op.backward = {{x_ND.bytes + norm_temporaries(x_ND, norm)}};
  op.gradients = {{residual_ND.number, residual_ND.bytes}, {x_ND.number, 0}};
  op.outputs = {h.number, y.number};
  op.forward_work.passes.push_back(pass(h.rows * h.columns, 3 * static_cast<double>(element_), 1));
  tape_.record(std::move(op));
  return {h, y};
}

OpCost CostOps::norm_linear_cost(const TensorSize& h_ND, const Norm& norm, RowRange rows) {
  const ProjectionShape shape = projection_shape(table_, rows);
  const bool gathers = gathers_inputs(rows);
  const std::int64_t tokens = gathers ? all_tokens(h_ND.rows) : h_ND.rows;
  const TensorSize normed = tensor(h_ND.rows, h_ND.columns);
  OpCost op = norm_cost(h_ND, norm);
  const bool computes_again = settings_.recompute == Recompute::cheap;
  if (computes_again) op.again_work = op.forward_work;
  op.kept = {h_ND, statistics(h_ND.rows, norm)};
  add_projection(op, projection_cost(shape, settings_, tokens, tape_));
  keep_or_compute_again(op, normed, shape.needs_input());
  if (gathers) gather_inputs(op, normed, shape);
  // The gradients of the norm's output and of its input.
  op.backward.push_back({2 * normed.bytes + norm_temporaries(h_ND, norm)});
  if (norm.kind.is_centred) op.forward.push_back({normed.bytes + norm_temporaries(h_ND, norm)});
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

TensorSize CostOps::norm_linear(const TensorSize& x_ND, const Norm& norm, RowRange rows) {
  const TensorSize y = tensor(gathers_inputs(rows) ? all_tokens(x_ND.rows) : x_ND.rows,
                              projection_shape(table_, rows).num_outputs);
  OpCost op = norm_linear_cost(x_ND, norm, rows);
  op.inputs = {x_ND};
  op.gradients = {{x_ND.number, x_ND.bytes}};
  op.outputs = {y.number};
  tape_.record(std::move(op));
  return y;
}

std::pair<TensorSize, TensorSize> CostOps::add_norm_linear(const TensorSize& x_ND,
                                                           const TensorSize& residual_ND,
                                                           const Norm& norm, RowRange rows) {
  const TensorSize h = tensor(x_ND.rows, x_ND.columns);
  const TensorSize y = tensor(gathers_inputs(rows) ? all_tokens(x_ND.rows) : x_ND.rows,
                              projection_shape(table_, rows).num_outputs);
  OpCost op = norm_linear_cost(h, norm, rows);
  op.inputs = {x_ND, residual_ND};
  op.gradients = {{residual_ND.number, residual_ND.bytes}, {x_ND.number, 0}};
  op.outputs = {h.number, y.number};
  op.forward_work.passes.push_back(pass(h.rows * h.columns, 3 * static_cast<double>(element_), 1));
  tape_.record(std::move(op));
  return {h, y};
}

TensorSize CostOps::add_bias(const TensorSize& x_NF, RowRange rows) {
  OpCost op{.inputs = {x_NF}};
  TensorSize y = x_NF;
  // Of own tokens, whose sums are a part of a larger tensor.
  if (shares_tokens() && !table_.row(rows.first).split) {
    y = tensor(x_NF.rows, x_NF.columns);
    op.outputs = {y.number};
  }
  const auto element = static_cast<double>(element_);
  op.forward_work.passes = {pass(x_NF.rows * x_NF.columns, 2 * element, 1)};
  op.backward_work.passes = {pass(x_NF.rows * x_NF.columns, element, 1)};
  tape_.record(std::move(op));
  return y;
}

TensorSize CostOps::scale(const TensorSize& x_ND, double) {
  const TensorSize y = tensor(x_ND.rows, x_ND.columns);
  OpCost op{.inputs = {x_ND}, .gradients = {{x_ND.number, x_ND.bytes}}, .outputs = {y.number}};
  op.forward_work.passes = {pass(y.rows * y.columns, 2 * static_cast<double>(element_), 1)};
  op.backward_work = op.forward_work;
  tape_.record(std::move(op));
  return y;
}

/// Temporaries of backward next to the gradients. Of swiglu those of kernels::composed in fp32,
/// which CPUs write before they are rounded; of other functions two or three, as they are.
std::int64_t CostOps::activation_bytes(std::int64_t elements, const Activation& activation) const {
  // And of xielu as many in fp32.
  if (activation.function == Activation::Function::xielu) return 5 * fp32_bytes * elements;
  // Gate, share and a step on the way, and which are beyond the limit.
  if (activation.function == Activation::Function::clamped) return (3 * element_ + 1) * elements;
  if (!activation.is_swiglu()) return (activation.is_gated ? 2 : 0) * element_ * elements;
  const std::int64_t copies = settings_.on_gpu ? 3 : 4;
  return settings_.is_composed ? copies * fp32_bytes * elements : 0;
}

void CostOps::add_activation_work(OpCost& op, std::int64_t elements,
                                  const Activation& activation) const {
  const auto e = static_cast<double>(element_);
  double forward = bytes_.swiglu, backward = bytes_.swiglu_backward;
  double operations = bytes_.operations / 2;
  if (!activation.is_swiglu()) {
    forward = (activation.is_gated ? 5 : 2) * e;
    backward = (activation.is_gated ? 13 : 3) * e;
    operations = activation.is_gated ? 4 : 1;
    if (activation.function == Activation::Function::clamped) {
      forward = 14 * e;
      backward = 34 * e;
      operations = 7;
    }
    if (activation.function == Activation::Function::xielu) {
      forward += 10.0 * fp32_bytes;
      backward += 20.0 * fp32_bytes;
      operations = 16;
    }
  }
  op.forward_work.passes.push_back(pass(elements, forward, operations));
  if (settings_.recompute == Recompute::cheap)
    op.again_work.passes.push_back(op.forward_work.passes.back());
  op.backward_work.passes.push_back(pass(elements, backward, operations));
}

TensorSize CostOps::activated_linear(const TensorSize& gate_up, const Activation& activation,
                                     RowRange, RowRange rows) {
  const ProjectionShape shape = projection_shape(table_, rows);
  const TensorSize activated =
      tensor(gate_up.rows, activation.is_gated ? gate_up.columns / 2 : gate_up.columns);
  const TensorSize y = tensor(own_tokens(gate_up.rows), shape.num_outputs);
  OpCost op{.inputs = {gate_up}, .kept = {gate_up}, .outputs = {y.number}};
  op.gradients = {{gate_up.number, gate_up.bytes}};
  const std::int64_t elements = activated.rows * activated.columns;
  add_activation_work(op, elements, activation);
  add_projection(op, projection_cost(shape, settings_, gate_up.rows, tape_));
  keep_or_compute_again(op, activated, shape.needs_input());
  scatter_outputs(op, y);
  // Gradients of the product and of gate and up meet at the activation function.
  op.backward.push_back({activated.bytes + gate_up.bytes + activation_bytes(elements, activation)});
  tape_.record(std::move(op));
  return y;
}

TensorSize CostOps::gate(const TensorSize& x_ND, const TensorSize& gate) {
  const TensorSize y = tensor(x_ND.rows, x_ND.columns);
  OpCost op{.inputs = {x_ND, gate}, .kept = {x_ND, gate}, .outputs = {y.number}};
  op.backward = {{x_ND.bytes + reduction_bytes(settings_, x_ND.rows * x_ND.columns)}};
  if (gate.columns > 1) {
    // The sigmoid and its gradient, which nothing sums.
    op.forward = {{y.bytes + gate.bytes}};
    op.backward = {{x_ND.bytes + 3 * gate.bytes}};
  }
  op.gradients = {{x_ND.number, x_ND.bytes}, {gate.number, gate.bytes}};
  op.forward_work.passes = {pass(y.rows * y.columns, 2 * static_cast<double>(element_), 2)};
  op.backward_work.passes = {pass(y.rows * y.columns, 6 * static_cast<double>(element_), 4)};
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

}  // namespace finetune::model
