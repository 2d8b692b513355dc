// SPDX-License-Identifier: Apache-2.0
#include "plan/buffers.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace finetune::plan {
namespace {

/// The sizes of shard::BufferPool: the smallest free buffer that fits, else a new one.
class Pool {
 public:
  std::int64_t take(std::int64_t count) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (*it >= count && (best == free_.end() || *it < *best)) best = it;
    }
    if (best == free_.end()) {
      total_ += count;
      return count;
    }
    const std::int64_t whole = *best;
    free_.erase(best);
    return whole;
  }
  void put(std::int64_t whole) { free_.push_back(whole); }
  std::int64_t total() const { return total_; }

 private:
  std::vector<std::int64_t> free_;
  std::int64_t total_ = 0;
};

/// Units of each stage of a pass: the embedding, the blocks, the head; as train::Stages has them.
using Stages = std::vector<std::vector<int>>;

Stages stages_of(const ShardMap& shards, const BufferRules& rules) {
  const auto num_units = static_cast<std::int64_t>(shards.units().size());
  if (num_units == 1) return Stages(static_cast<std::size_t>(rules.num_layers) + 2, {0});
  const std::int64_t units_a_block = std::max<std::int64_t>(1, (num_units - 2) / rules.num_layers);
  Stages stages = {{0}};
  for (int unit = 1; unit < num_units - 1; ++unit) {
    if ((unit - 1) % units_a_block == 0) stages.emplace_back();
    stages.back().push_back(unit);
  }
  stages.push_back({static_cast<int>(num_units) - 1});
  if (rules.tied_embeddings) stages.back().push_back(0);
  return stages;
}

/// Replays train::forward_backward: what shard::ModelShards and shard::Gradients take of their
/// pools.
class Replay {
 public:
  Replay(const ShardMap& shards, const BufferRules& rules)
      : shards_(shards),
        rules_(rules),
        gathers_(shards.num_shards() > 1),
        stages_(stages_of(shards, rules)),
        num_open_(shards.units().size(), 0) {}

  void micro_step() {
    const int head = static_cast<int>(stages_.size()) - 1;
    for (int stage = 0; stage < head; ++stage) {
      open(stage);
      // The last block stays open: backward begins with it.
      if (stage > 0 && stage == head - 1) open(stage);
      prefetch(stage + 1);
      close(stage);
    }
    open(head);
    backward(head);
    close(head);
    for (int stage = head - 1; stage > 0; --stage) {
      open(stage);
      if (stage == head - 1) close(stage);
      if (stage > 1) prefetch(stage - 1);
      backward(stage);
      close(stage);
    }
    backward(0);
  }

  /// All sums are complete; SHARD_GRAD_OP lets go of what it kept.
  void finish() {
    on_their_way_.clear_into(gradients_);
    for (const auto& [unit, whole] : gathered_)
      weights_.put(whole);
    gathered_.clear();
  }

  BufferElements elements() const { return {weights_.total(), gradients_.total()}; }

 private:
  /// Gradients that leave while the next are made.
  struct OnTheirWay {
    std::vector<std::int64_t> buffers;

    void arrive(Pool& pool) {
      pool.put(buffers.front());
      buffers.erase(buffers.begin());
    }
    void clear_into(Pool& pool) {
      while (!buffers.empty())
        arrive(pool);
    }
  };

  std::int64_t padded(int unit) const {
    return shards_.units()[static_cast<std::size_t>(unit)].padded_count(shards_.num_shards());
  }
  const std::vector<int>& units(int stage) const {
    return stages_[static_cast<std::size_t>(stage)];
  }

  void gather(int unit) {
    if (gathers_ && !gathered_.contains(unit)) gathered_[unit] = weights_.take(padded(unit));
  }

  void prefetch(int stage) {
    if (!rules_.overlaps) return;
    for (const int unit : units(stage))
      gather(unit);
  }

  void open(int stage) {
    for (const int unit : units(stage)) {
      gather(unit);
      ++num_open_[static_cast<std::size_t>(unit)];
    }
  }

  void close(int stage) {
    for (const int unit : units(stage)) {
      const bool is_last = --num_open_[static_cast<std::size_t>(unit)] == 0;
      if (!gathers_ || !is_last || rules_.sharding == Sharding::shard_grad_op) continue;
      weights_.put(gathered_.at(unit));
      gathered_.erase(unit);
    }
  }

  /// Whether no earlier stage has the unit: its gradient is then complete.
  bool is_complete(int unit, int stage) const {
    return std::none_of(stages_.begin(), stages_.begin() + stage, [&](const auto& earlier) {
      return std::find(earlier.begin(), earlier.end(), unit) != earlier.end();
    });
  }

  void backward(int stage) {
    if (rules_.sums_in_place) return;
    for (const int unit : units(stage)) {
      if (open_gradients_.contains(unit)) continue;
      while (on_their_way_.buffers.size() >= 2)
        on_their_way_.arrive(gradients_);
      open_gradients_[unit] = gradients_.take(padded(unit));
    }
    for (const int unit : units(stage)) {
      if (!is_complete(unit, stage)) continue;
      on_their_way_.buffers.push_back(open_gradients_.at(unit));
      open_gradients_.erase(unit);
      if (!gathers_ || !rules_.overlaps) on_their_way_.clear_into(gradients_);
    }
  }

  const ShardMap& shards_;
  const BufferRules& rules_;
  bool gathers_;
  Stages stages_;
  Pool weights_;
  Pool gradients_;
  std::vector<int> num_open_;
  std::map<int, std::int64_t> gathered_;        ///< by unit, its buffer
  std::map<int, std::int64_t> open_gradients_;  ///< likewise
  OnTheirWay on_their_way_;
};

}  // namespace

BufferElements count_buffers(const ShardMap& shards, const BufferRules& rules) {
  Replay replay(shards, rules);
  // Later micro-steps and steps find what earlier ones left in the pools.
  for (int step = 0; step < 2; ++step) {
    replay.micro_step();
    if (rules.accumulation > 1) replay.micro_step();
    replay.finish();
  }
  return replay.elements();
}

}  // namespace finetune::plan
