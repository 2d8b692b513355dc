// SPDX-License-Identifier: Apache-2.0
// Of CostOps: layers with a state space.

#include "kernels/state_space.hpp"
#include "model/cost/cost_ops.hpp"

namespace finetune::model {
namespace {

/// Of what autograd keeps of a composition in fp32, about: of every channel of a token several, and
/// of every head of its chunk what tokens say of each other.
std::int64_t composed_state_bytes(const kernels::StateShape& shape, std::int64_t tokens) {
  const std::int64_t of_head =
      6 * shape.head_size + 3 * shape.state_size + 4 * kernels::state_chunk;
  return tokens * (shape.num_heads() * of_head + 8 * shape.channels()) * fp32_bytes;
}

}  // namespace

TensorSize CostOps::state_space(const TensorSize& x_NI, const StateRows& rows,
                                const StateHeads& heads, double, const SequenceSize& sequence,
                                std::int64_t) {
  const std::int64_t num_heads = table_.row(rows.decay).shape.front();  // this rank's
  const kernels::StateShape shape{.num_groups = num_heads / heads.heads_per_group,
                                  .heads_per_group = heads.heads_per_group,
                                  .head_size = heads.head_size,
                                  .state_size = heads.state_size,
                                  .taps = heads.taps};
  const TensorSize out = tensor(x_NI.rows, shape.outputs());
  const std::int64_t samples = sequence.sample > 0 ? x_NI.rows / sequence.sample : sequence.batch;
  const std::int64_t length = x_NI.rows / samples;
  const std::int64_t pieces =
      samples * ((length + kernels::state_chunk - 1) / kernels::state_chunk);
  const std::int64_t of_taps = shape.channels() * (shape.taps + 1);
  const std::int64_t numbers = of_taps + 3 * num_heads + shape.outputs();
  const std::int64_t copies = element_ < fp32_bytes ? numbers * fp32_bytes : 0;
  OpCost op{.inputs = {x_NI}, .kept = {x_NI}, .outputs = {out.number}};
  op.forward = {{out.bytes + copies}};
  op.backward = {{x_NI.bytes + copies}};
  op.gradients = {{x_NI.number, x_NI.bytes}};
  if (settings_.is_composed) {
    const std::int64_t kept = composed_state_bytes(shape, x_NI.rows);
    // Forward nothing is kept, but a sample's parts are there at once.
    op.forward.front().bytes += kept / (2 * sequence.batch);
    op.backward.front().bytes += 2 * kept + numbers * fp32_bytes;
  } else {
    // What is convolved, and what heads read, in fp32; and of the channels of groups each team's
    // sum.
    const std::int64_t way = x_NI.rows * (shape.channels() + shape.outputs());
    op.forward.front().bytes += way * fp32_bytes;
    op.backward.front().bytes += (way + x_NI.rows * shape.teams() * 2 * shape.keys() + of_taps +
                                  samples * 3 * num_heads + (pieces + 1) * shape.outputs()) *
                                 fp32_bytes;
  }
  // A token fades, adds to and reads every element of its state once.
  const double elements = static_cast<double>(x_NI.rows) *
                          static_cast<double>(num_heads * heads.head_size) *
                          static_cast<double>(heads.state_size);
  op.forward_work.attention = {{5 * elements, static_cast<double>(kernels::state_chunk)}};
  op.backward_work.attention = {{27 * elements, static_cast<double>(kernels::state_chunk)}};
  tape_.record(std::move(op));
  return out;
}

}  // namespace finetune::model
