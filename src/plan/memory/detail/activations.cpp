// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/detail/activations.hpp"

#include "plan/layout/stages.hpp"
#include "plan/memory/detail/ops_cost.hpp"

#include <algorithm>

namespace finetune::plan {
namespace {

constexpr std::int64_t float_bytes = 4;
constexpr std::int64_t index_bytes = 8;

/// Ids, labels, positions, the places of the trained ones, for dropout the tokens' numbers; the
/// rotary tables.
std::int64_t sequence_bytes(const PlanInput& request) {
  const std::int64_t tokens = tokens_of(request);
  const std::int64_t numbers = request.adapter_dropout > 0 ? 5 : 4;
  return numbers * index_bytes * tokens +
         float_bytes * request.architecture.head_size * request.max_seq_length;
}

/// What a block keeps until its backward pass, and the worst moment in addition.
struct BlockBytes {
  std::int64_t kept = 0;
  model::BytesHeld worst;
};

BlockBytes block_bytes(const StageCost& block, bool is_recomputed) {
  BlockBytes bytes = {block.tape.kept_bytes(), block.tape.worst(block.input, block.output)};
  if (!is_recomputed) return bytes;
  // Its input alone stays; the rest is there while it is computed again.
  bytes.worst.bytes += bytes.kept - block.input.bytes;
  bytes.kept = block.input.bytes;
  return bytes;
}

}  // namespace

ActivationBytes plan_activations(const PlanInput& request, const model::ParameterTable& table) {
  const OpsCost cost(request, table, own_passes(request));
  const schedule::Blocks blocks = blocks_of(request);
  // Backward of a block runs while those before it wait for theirs.
  std::int64_t kept = 0, least_kept = 0;
  model::BytesHeld worst;
  for (std::int64_t i = 0; i < cost.num_blocks(); ++i) {
    const BlockBytes block = block_bytes(cost.block(i), blocks.is_recomputed(static_cast<int>(i)));
    kept += block.kept;
    least_kept = i == 0 ? block.kept : std::min(least_kept, block.kept);
    const model::BytesHeld moment = block.worst + kept;
    if (moment.total() >= worst.total()) worst = moment;
  }
  const StageCost head = cost.head();
  const std::int64_t at_head =
      kept + head.tape.kept_bytes() + head.tape.worst(head.input, head.output).total();
  ActivationBytes bytes;
  bytes.kept = kept;
  bytes.least_kept = least_kept;
  bytes.worst_is_head = at_head > worst.total();
  bytes.unpacked = bytes.worst_is_head ? 0 : worst.unpacked;
  bytes.in_flight = (bytes.worst_is_head ? at_head : worst.bytes) - kept + sequence_bytes(request);
  return bytes;
}

}  // namespace finetune::plan
