// SPDX-License-Identifier: Apache-2.0
// Of CostOps: mixtures of experts.

#include <algorithm>

#include "model/cost/adapter_cost.hpp"
#include "model/cost/cost_ops.hpp"

namespace finetune::model {
namespace {

constexpr std::int64_t int64_bytes = 8;
/// Elements of the gradient of all experts' matrices that one launch writes to fresh memory, from
/// where it is added to the unit's (ExpertProducts); 0: it is added as it is computed. GPUs that do
/// not have the kernel are counted with those that do.
std::int64_t fresh_gradient(const ProjectionShape& shape, std::int64_t num_experts,
                            const CostSettings& settings) {
  const bool is_aligned = shape.num_inputs % 8 == 0 && shape.num_outputs % 8 == 0;
  if (!settings.on_gpu || settings.compute != core::DType::bf16 || !shape.is_trained ||
      !is_aligned || fp8_products(shape, settings).weight_gradient)
    return 0;
  return num_experts * shape.num_inputs * shape.num_outputs;
}

}  // namespace

/// Every rank has as many tokens, and the router spreads them evenly. Experts in one tensor are
/// shared by the ranks of tp and ep alike, so that one of them gets the choices of fewer tokens.
CostOps::OwnExperts CostOps::own_experts(const ExpertRows& rows, const Experts& experts,
                                         std::int64_t tokens) const {
  const PartPlace& place = settings_.share.place;
  const bool are_fused = rows.stride == 0;
  OwnExperts own{.num = experts.num,
                 .num_of_group = experts.num,
                 .choices = tokens * experts.top_k,
                 .d_ff = experts.d_ff};
  RowRange gate_up = rows.gate_up, down = {rows.down, 1};
  if (!place.is_whole() && are_fused) {
    own.num = held_fused_experts(experts.num, place).count();
    own.choices = (own.choices + place.tp - 1) / place.tp;
    own.num_of_group = 0;
    PartPlace of = place;
    for (of.i_ep = 0; of.i_ep < of.ep; ++of.i_ep)
      own.num_of_group += held_fused_experts(experts.num, of).count();
  } else if (!place.is_whole()) {
    const IndexRange held = held_experts(experts.num, place);
    own.num = held.count();
    gate_up.first += static_cast<int>(held.first) * rows.stride;
    down.first += static_cast<int>(held.first) * rows.stride;
    own.d_ff = table_.row(gate_up.first).shape[0];
  }
  own.inner = experts.inner(own.d_ff);
  own.gate_up = expert_shape(table_, gate_up, rows.are_by_outputs);
  own.down = expert_shape(table_, down, rows.are_by_outputs);
  return own;
}

/// The most that experts hold at once, of `tokens` tokens of `width` channels: copies of all this
/// rank's tokens, one per choice, and of those that its experts get. Where these are not the same,
/// they are sent in the order of ranks and put in that of experts. Next to the gradients of the
/// experts' matrices, if these are computed together.
void CostOps::add_expert_moments(OpCost& op, const OwnExperts& own, const Experts& experts,
                                 std::int64_t tokens, std::int64_t width) const {
  const std::int64_t output = tokens * width * element_, all = output * experts.top_k;
  const std::int64_t here = own.choices * width * element_;
  const std::int64_t moved = settings_.share.place.ep > 1 ? 2 * here : here < all ? here : 0;
  // The host's kernels scale copies as they make them, and add them where they lie.
  const bool has_kernels = !settings_.on_gpu && !settings_.is_composed;
  const std::int64_t scaled = experts.scales_input && !has_kernels ? all : 0;
  const std::int64_t there = all + scaled + moved, back = all + moved;
  const std::int64_t added = has_kernels ? all + output : 2 * all;
  // Of x own tokens are kept: backward gathers all again.
  const std::int64_t whole = shares_tokens() ? output : 0;
  const std::int64_t elements = own.choices * own.d_ff;
  const std::int64_t activated = elements * element_, hidden = own.choices * own.inner * element_;
  std::int64_t unpacked = 0;
  for (const ProjectionShape& shape : {own.gate_up, own.down})
    if (shape.is_packed(settings_)) unpacked = std::max(unpacked, unpacked_bytes(shape, settings_));
  const ExpertScratch of_gate_up = expert_scratch(own.gate_up, settings_, own.choices, own.num);
  const ExpertScratch of_down = expert_scratch(own.down, settings_, own.choices, own.num);
  const bool computes_again = settings_.recompute == Recompute::cheap;
  const std::int64_t again = computes_again ? activated : 0;
  const auto of_gradient = [&](const ProjectionShape& shape) {
    return fresh_gradient(shape, own.num, settings_) * element_;
  };
  // Before there is anything that is kept of gate, up and their product.
  op.forward = {{whole + there - hidden - (computes_again ? 0 : activated)},
                {whole + here + again + of_gate_up.forward, unpacked},
                {here + again + of_down.forward, unpacked},
                {back + again},
                {added + again}};
  // The gate and what it is multiplied with.
  if (!experts.activation.is_swiglu()) op.forward.push_back({hidden + again});
  // Of each row its expert's, where all are computed together.
  if (experts.has_biases && settings_.on_gpu) {
    op.forward[1].bytes += hidden;
    op.forward[2].bytes += here;
  }
  // Gradients of outputs with and without the choices' weights, whose own are sums in fp32.
  const std::int64_t d_outputs = (experts.scales_input ? 1 : 2) * here;
  const std::int64_t of_weights =
      experts.scales_input || has_kernels ? 0 : activated + reduction_bytes(settings_, elements);
  op.backward = {
      {whole + back},
      {d_outputs + activated + again + of_down.backward, unpacked},
      {d_outputs + activated + again +
       std::max({of_weights, of_gradient(own.down), of_down.weight_gradient})},
      {activated + hidden + activation_bytes(elements, experts.activation)},
      {hidden + whole + there},
      {hidden + whole + 2 * here + of_gate_up.backward, unpacked},
      {hidden + whole + 2 * here + std::max(of_gradient(own.gate_up), of_gate_up.weight_gradient)},
      {whole + back},
      {std::max(added + output, 3 * output)}};
  if (experts.scales_input) {
    const std::int64_t sums = has_kernels ? 0 : all + reduction_bytes(settings_, all / element_);
    op.backward.push_back({whole + 2 * all + sums});
  }
}

/// Copies go to the ranks of their experts and come back, forward and backward, and in backward go
/// there once more instead of being kept. So do numbers: how many there are, each choice's weight
/// and its gradient. Where tokens are shared, all of them are gathered before.
void CostOps::share_experts(OpCost& op, const OwnExperts& own, const Experts& experts,
                            const TensorSize& x_nD) const {
  using enum Travel::Kind;
  if (settings_.share.place.ep > 1) {
    const std::int64_t copies = own.choices * x_nD.columns * element_;
    op.forward_work.travels.assign(2, travel(Sharers::ep, all_to_all, copies));
    op.forward_work.travels.push_back(
        travel(Sharers::ep, all_to_all, int64_bytes * own.num_of_group));
    op.backward_work.travels.assign(3, travel(Sharers::ep, all_to_all, copies));
    if (!experts.scales_input)
      op.backward_work.travels.insert(op.backward_work.travels.end(), 2,
                                      travel(Sharers::ep, all_to_all, fp32_bytes * own.choices));
  }
  if (!shares_tokens()) return;
  const std::int64_t whole = all_tokens(x_nD.rows) * x_nD.columns * element_;
  op.forward_work.travels.push_back(travel(Sharers::tp, all_gather, whole));
  op.forward_work.travels.push_back(travel(Sharers::tp, reduce_scatter, whole));
  op.backward_work.travels.insert(op.backward_work.travels.end(), 2,
                                  travel(Sharers::tp, all_gather, whole));
  op.backward_work.travels.push_back(travel(Sharers::tp, reduce_scatter, whole));
}

/// Of the router there is one number for each expert: nothing next to these.
void CostOps::add_bias_work(OpCost& op, const OwnExperts& own, std::int64_t width) const {
  const auto element = static_cast<double>(element_);
  const std::int64_t elements = own.choices * (own.inner + width);
  const double operations = settings_.on_gpu ? 4 : 2 * static_cast<double>(own.num);
  op.forward_work.passes.push_back(
      pass(elements, (settings_.on_gpu ? 4 : 2) * element, operations));
  op.backward_work.passes.push_back(pass(elements, 2 * element, operations));
}

/// What adapters hold next to products, at the moments of add_expert_moments.
void CostOps::add_expert_parts(OpCost& op, const OwnExperts& own) const {
  const auto add = [&](const ProjectionShape& shape, std::size_t forward, std::size_t backward,
                       std::size_t gradients) {
    if (shape.adapted.empty()) return;
    const auto cost =
        shape.adapted.front()->adapted.cost->of_experts(shape, settings_, own.choices, own.num);
    op.forward[forward].bytes += cost.forward;
    op.backward[backward].bytes += cost.backward;
    op.backward[gradients].bytes += cost.gradients;
    op.forward_work.add(cost.forward_work);
    op.backward_work.add(cost.backward_work);
  };
  add(own.gate_up, 1, 5, 6);
  add(own.down, 2, 1, 2);
}

TensorSize CostOps::experts(const TensorSize& x_ND, const TensorSize& routed_ND,
                            const ExpertRows& rows, const Experts& experts,
                            const SequenceSize& sequence) {
  const TensorSize y = tensor(x_ND.rows, x_ND.columns);
  const std::int64_t tokens = all_tokens(x_ND.rows);
  const OwnExperts own = own_experts(rows, experts, tokens);
  OpCost op{.inputs = {x_ND}, .outputs = {y.number}};
  op.gradients = {{x_ND.number, x_ND.bytes}};
  // Probabilities, where weights or the loss have them; of each choice its number, weight and
  // place.
  const std::int64_t scored = experts.scales_input && experts.balance == 0 ? 0 : experts.num;
  const std::int64_t routing =
      tokens * (fp32_bytes * scored + experts.top_k * (2 * int64_bytes + fp32_bytes));
  op.kept = {x_ND, tape_.tensor(1, routing, 1), tensor(own.choices, own.inner)};
  if (settings_.recompute == Recompute::nothing) op.kept.push_back(tensor(own.choices, own.d_ff));
  if (routed_ND.bytes > 0) {
    op.inputs.push_back(routed_ND);
    op.kept.push_back(routed_ND);
    op.gradients.push_back({routed_ND.number, routed_ND.bytes});
  }
  add_expert_moments(op, own, experts, tokens, x_ND.columns);

  // Each of `active` experts gets its share of the choices; tokens are copied there and back.
  const double active = static_cast<double>(std::min(own.num, own.choices));
  const double share = static_cast<double>(own.choices) / active;
  for (const ProjectionShape& shape : {own.gate_up, own.down}) {
    add_projection_work(shape, settings_, share, active, op.forward_work, op.backward_work);
    if (const std::int64_t elements = fresh_gradient(shape, own.num, settings_); elements > 0)
      op.backward_work.passes.push_back(pass(elements, 2 * static_cast<double>(element_), 1));
  }
  add_expert_parts(op, own);
  add_activation_work(op, own.choices * own.d_ff, experts.activation);
  if (experts.has_biases) add_bias_work(op, own, x_ND.columns);
  add_projection_work(projection_shape(table_, {rows.router, 1}), settings_,
                      static_cast<double>(tokens), 1, op.forward_work, op.backward_work);
  const MemoryPass copies =
      pass(own.choices * x_ND.columns, 4 * static_cast<double>(element_), 2 * bytes_.operations);
  op.forward_work.passes.push_back(copies);
  op.backward_work.passes.push_back(copies);
  share_experts(op, own, experts, x_ND);
  // Balance: of each sample, and of padding, the choices of each expert and the tokens.
  if (settings_.share.cp > 1 && experts.balance > 0)
    op.backward_work.travels.push_back(
        travel(Sharers::cp, Travel::Kind::all_reduce,
               fp32_bytes * (sequence.batch + 1) * (experts.num + 1)));
  tape_.record(std::move(op));
  return y;
}

}  // namespace finetune::model
