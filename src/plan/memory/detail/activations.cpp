// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/detail/activations.hpp"

#include "plan/layout/stages.hpp"
#include "plan/memory/buffers.hpp"
#include "plan/memory/detail/ops_cost.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace finetune::plan {
namespace {

constexpr std::int64_t float_bytes = 4;
constexpr std::int64_t index_bytes = 8;

/// Ids, labels, positions, the places of the trained ones, for dropout the tokens' numbers; the
/// rotary tables.
std::int64_t sequence_bytes(const PlanInput& request) {
  const std::int64_t tokens = tokens_of(request);
  const std::int64_t numbers = request.adapter_dropout > 0 ? 5 : 4;
  return numbers * index_bytes * tokens + (request.architecture.window_positions ? 2 : 1) *
                                              float_bytes * request.architecture.turned_channels() *
                                              request.max_seq_length;
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

std::vector<BlockBytes> all_blocks(const PlanInput& request, const OpsCost& cost) {
  const schedule::Blocks blocks = blocks_of(request);
  std::vector<BlockBytes> all;
  for (std::int64_t i = 0; i < cost.num_blocks(); ++i)
    all.push_back(block_bytes(cost.block(i), blocks.is_recomputed(static_cast<int>(i))));
  return all;
}

/// Of what lies beside the stream, as a block begins or ends to need it.
struct SideBytes {
  std::int64_t written = 0;
  /// Gradients to which it is the first to add, of a part of their channels, or of all.
  std::int64_t gradients_of_parts = 0;
  std::int64_t gradients = 0;
};

std::vector<SideBytes> side_bytes(const OpsCost& cost) {
  std::vector<SideBytes> all(static_cast<std::size_t>(cost.num_blocks()));
  const model::SideLayout& layout = cost.sides();
  std::vector<bool> is_read(layout.channels.size(), false);
  for (std::int64_t i = cost.num_blocks() - 1; i >= 0 && layout.exist(); --i) {
    SideBytes& bytes = all[static_cast<std::size_t>(i)];
    for (const model::Side side : model::all_sides) {
      const model::SideSlice& read = layout.block(i).read[side];
      const model::SideSlice& written = layout.block(i).written[side];
      if (written.exists()) bytes.written += cost.side_bytes(written.slot);
      if (!read.exists() || is_read[static_cast<std::size_t>(read.slot)]) continue;
      is_read[static_cast<std::size_t>(read.slot)] = true;
      const bool is_part = read.size < layout.channels[static_cast<std::size_t>(read.slot)];
      (is_part ? bytes.gradients_of_parts : bytes.gradients) += cost.side_bytes(read.slot);
    }
  }
  if (layout.looked_up.exists()) all.front().written += cost.side_bytes(layout.looked_up.slot);
  return all;
}

/// What of the blocks' activations is on the device as the events of a pass say, and the worst
/// moment.
class Ledger {
 public:
  Ledger(const std::vector<BlockBytes>& bytes, std::vector<SideBytes> sides,
         std::int64_t head_bytes, std::int64_t embedding_bytes, schedule::Blocks blocks)
      : bytes_(bytes),
        sides_(std::move(sides)),
        head_bytes_(head_bytes),
        embedding_bytes_(embedding_bytes),
        blocks_(blocks) {}

  void run(const schedule::Stages& stages) {
    for (const schedule::Event& event : make_pass(stages, {.blocks = blocks_})) {
      const bool is_block = event.index > stages.embedding() && event.index < stages.head();
      if (is_block || event.action == schedule::Action::loss) run(event);
      if (event.index == stages.embedding() && event.action == schedule::Action::backward)
        meet({.bytes = embedding_bytes_}, false);
    }
  }

  std::int64_t kept() const { return kept_by_others_; }
  /// In addition to what stays on the device.
  const model::BytesHeld& worst() const { return worst_; }
  std::int64_t travelling() const { return worst_travelling_; }
  bool worst_is_head() const { return worst_is_head_; }

 private:
  void run(const schedule::Event& event) {
    using enum schedule::Action;
    const std::size_t i = static_cast<std::size_t>(event.index - 1);
    switch (event.action) {
      case forward:
      case forward_kept:
        held(event) += bytes_[i].kept;
        stays_ += sides_[i].written;
        return meet(bytes_[i].worst, false);
      case bring_back:
        travelling_ += bytes_[i].kept;
        return;
      case drop:
        travelling_ -= bytes_[i].kept;
        return;
      case loss:
        return meet({.bytes = head_bytes_}, true);
      case backward:
        stays_ += sides_[i].gradients_of_parts;
        meet(bytes_[i].worst, false);
        held(event) -= bytes_[i].kept;
        // What it wrote is gone, with its gradient.
        stays_ += sides_[i].gradients - 2 * sides_[i].written;
        return;
      default:
        return;
    }
  }

  std::int64_t& held(const schedule::Event& event) {
    return blocks_.is_offloaded(event.index - 1, static_cast<int>(bytes_.size())) ? travelling_
                                                                                  : stays_;
  }

  void meet(const model::BytesHeld& in_flight, bool is_head) {
    kept_by_others_ = std::max(kept_by_others_, stays_);
    const model::BytesHeld moment = in_flight + (stays_ + travelling_);
    // Of moments that are as bad, a block's is the one that is told.
    if (moment.total() < worst_.total() || (is_head && moment.total() == worst_.total())) return;
    worst_ = moment;
    worst_travelling_ = travelling_;
    worst_is_head_ = is_head;
  }

  const std::vector<BlockBytes>& bytes_;
  std::vector<SideBytes> sides_;
  std::int64_t head_bytes_;
  std::int64_t embedding_bytes_;  ///< of its backward pass
  schedule::Blocks blocks_;
  std::int64_t stays_ = 0;       ///< until backward
  std::int64_t travelling_ = 0;  ///< of offloaded blocks, on the device
  std::int64_t kept_by_others_ = 0;
  model::BytesHeld worst_;
  std::int64_t worst_travelling_ = 0;
  bool worst_is_head_ = false;
};

/// Of its backward pass, where an adapter computes there; rows are added to where they lie.
std::int64_t embedding_bytes(const OpsCost& cost) {
  const StageCost embedding = cost.embedding();
  // The output is gone by then; its gradient is there.
  return embedding.tape.worst(embedding.input, embedding.output).total() - embedding.output.bytes;
}

}  // namespace

std::vector<std::int64_t> kept_by_blocks(const PlanInput& request,
                                         const model::ParameterTable& table) {
  std::vector<std::int64_t> kept;
  for (const BlockBytes& block : all_blocks(request, OpsCost(request, table, own_passes(request))))
    kept.push_back(block.kept);
  return kept;
}

ActivationBytes plan_activations(const PlanInput& request, const model::ParameterTable& table) {
  const OpsCost cost(request, table, own_passes(request));
  const std::vector<BlockBytes> blocks = all_blocks(request, cost);
  const StageCost head = cost.head();
  Ledger ledger(blocks, side_bytes(cost),
                head.tape.kept_bytes() + head.tape.worst(head.input, head.output).total(),
                embedding_bytes(cost), blocks_of(request));
  const std::vector<std::vector<int>> without_units(blocks.size() + 2);
  ledger.run(schedule::Stages(without_units, {}));
  ActivationBytes bytes;
  bytes.kept = ledger.kept();
  bytes.worst_is_head = ledger.worst_is_head();
  bytes.unpacked = bytes.worst_is_head ? 0 : ledger.worst().unpacked;
  bytes.travelling = ledger.travelling();
  bytes.in_flight = ledger.worst().bytes - bytes.kept - bytes.travelling + sequence_bytes(request);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    bytes.least_kept = i == 0 ? blocks[i].kept : std::min(bytes.least_kept, blocks[i].kept);
    if (blocks_of(request).is_offloaded(static_cast<int>(i), static_cast<int>(blocks.size())))
      bytes.on_host += offloaded_host_bytes(blocks[i].kept);
  }
  return bytes;
}

}  // namespace finetune::plan
