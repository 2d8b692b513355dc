// SPDX-License-Identifier: Apache-2.0
// Of CostOps: layers that remember, and attention's gates.

#include "kernels/delta_rule.hpp"
#include "model/cost/cost_ops.hpp"

namespace finetune::model {

std::pair<TensorSize, TensorSize> CostOps::part_gates(const TensorSize& x,
                                                      const AttentionShape& all) {
  const AttentionShape shape = own_heads(all);
  const std::int64_t width = shape.num_heads * shape.head_size;
  const TensorSize qkv = tensor(x.rows, x.columns - width), gates = tensor(x.rows, width);
  OpCost op{.inputs = {x}, .outputs = {qkv.number, gates.number}};
  op.forward = {{qkv.bytes + gates.bytes}};
  op.backward = {{x.bytes}};
  op.gradients = {{x.number, x.bytes}};
  op.forward_work.passes = {pass(x.rows * x.columns, 2 * static_cast<double>(element_), 2)};
  op.backward_work = op.forward_work;
  tape_.record(std::move(op));
  return {qkv, gates};
}

namespace {

/// Of what autograd keeps of a composition in fp32, about: of every head of a token several
/// queries, keys and values, and of its chunk what tokens say of each other.
std::int64_t composed_bytes(const DeltaHeads& heads, std::int64_t num_values, std::int64_t tokens) {
  const std::int64_t of_head = 8 * heads.key_size + 8 * heads.value_size + 6 * kernels::delta_chunk;
  const std::int64_t of_channels =
      6 * (2 * heads.key_size / heads.values_per_key + heads.value_size);
  return tokens * num_values * (of_head + of_channels) * fp32_bytes;
}

}  // namespace

TensorSize CostOps::delta_rule(const TensorSize& x_NI, const DeltaRows& rows,
                               const DeltaHeads& heads, double, const SequenceSize& sequence,
                               std::int64_t) {
  const std::int64_t num_values = table_.row(rows.decay).shape.front();  // this rank's
  const TensorSize out = tensor(x_NI.rows, num_values * heads.value_size);
  const std::int64_t numbers = table_.row(rows.taps).count() + 2 * num_values;
  const std::int64_t copies = element_ < fp32_bytes ? (numbers + heads.value_size) * fp32_bytes : 0;
  const std::int64_t gradients =
      (numbers + (num_values / heads.values_per_key + 1) * heads.value_size) * fp32_bytes;
  OpCost op{.inputs = {x_NI}, .kept = {x_NI}, .outputs = {out.number}};
  op.forward = {{out.bytes + copies}};
  op.backward = {{x_NI.bytes + copies + gradients}};
  op.gradients = {{x_NI.number, x_NI.bytes}};
  if (settings_.is_composed) {
    const std::int64_t kept = composed_bytes(heads, num_values, x_NI.rows);
    // Forward nothing is kept, but a sample's parts are there at once.
    op.forward.front().bytes += kept / (2 * sequence.batch);
    op.backward.front().bytes += 2 * kept;
  }
  // A token fades, reads, changes and reads every element of its memory once.
  const double elements = static_cast<double>(x_NI.rows * num_values) *
                          static_cast<double>(heads.key_size * heads.value_size);
  op.forward_work.attention = {{8 * elements, static_cast<double>(kernels::delta_chunk)}};
  op.backward_work.attention = {{40 * elements, static_cast<double>(kernels::delta_chunk)}};
  tape_.record(std::move(op));
  return out;
}

}  // namespace finetune::model
