// SPDX-License-Identifier: Apache-2.0
#include "plan/buffers.hpp"

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
      if (is_used_for(*it, count) && (best == free_.end() || *it < *best)) best = it;
    }
    if (best == free_.end()) {
      total_ += pooled_size(count);
      return pooled_size(count);
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

/// Replays train::forward_backward: what shard::ModelShards and shard::Gradients take of their
/// pools.
class Replay {
 public:
  Replay(const ShardMap& shards, const Stages& stages, const BufferRules& rules)
      : shards_(shards),
        stages_(stages),
        rules_(rules),
        gathers_(shards.num_shards() > 1),
        num_open_(shards.units().size(), 0) {}

  void micro_step() {
    const int head = stages_.head();
    open(stages_.all_along());
    for (int stage = 0; stage < head; ++stage) {
      open(stages_.units(stage));
      // The last block stays open: backward begins with it.
      if (stage > 0 && stage == head - 1) open(stages_.units(stage));
      prefetch(stage + 1);
      close(stages_.units(stage));
    }
    open(stages_.units(head));
    backward(head);
    close(stages_.units(head));
    for (int stage = head - 1; stage > 0; --stage) {
      open(stages_.units(stage));
      if (stage == head - 1) close(stages_.units(stage));
      if (stage > 1) prefetch(stage - 1);
      backward(stage);
      close(stages_.units(stage));
    }
    backward(0);
    close(stages_.all_along());
  }

  /// All sums are complete; what is kept until the step ends is let go of.
  void finish() {
    on_their_way_.clear_into(gradients_);
    for (const auto& [unit, whole] : gathered_)
      pool_of(unit).put(whole);
    gathered_.clear();
  }

  BufferSizes sizes() const { return {weights_.total(), frozen_.total(), gradients_.total()}; }

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

  /// Elements; bytes of a frozen unit.
  std::int64_t padded(int unit) const {
    return shards_.unit(unit).padded_count(shards_.num_shards());
  }
  Pool& pool_of(int unit) { return shards_.unit(unit).trainable ? weights_ : frozen_; }

  void gather(int unit) {
    if (gathers_ && !gathered_.contains(unit)) gathered_[unit] = pool_of(unit).take(padded(unit));
  }

  void prefetch(int stage) {
    if (!rules_.overlaps) return;
    for (const int unit : stages_.units(stage))
      gather(unit);
  }

  void open(const std::vector<int>& units) {
    for (const int unit : units) {
      gather(unit);
      ++num_open_[static_cast<std::size_t>(unit)];
    }
  }

  void close(const std::vector<int>& units) {
    for (const int unit : units) {
      const bool is_last = --num_open_[static_cast<std::size_t>(unit)] == 0;
      const bool stays =
          rules_.sharding == Sharding::shard_grad_op || shards_.unit(unit).stays_gathered;
      if (!gathers_ || !is_last || stays) continue;
      pool_of(unit).put(gathered_.at(unit));
      gathered_.erase(unit);
    }
  }

  void backward(int stage) {
    if (rules_.sums_in_place) return;
    for (const int unit : stages_.units(stage)) {
      if (!shards_.unit(unit).trainable || open_gradients_.contains(unit)) continue;
      while (on_their_way_.buffers.size() >= 2)
        on_their_way_.arrive(gradients_);
      open_gradients_[unit] = gradients_.take(padded(unit));
    }
    for (const int unit : stages_.completed(stage)) {
      if (!shards_.unit(unit).trainable) continue;
      on_their_way_.buffers.push_back(open_gradients_.at(unit));
      open_gradients_.erase(unit);
      if (!gathers_ || !rules_.overlaps) on_their_way_.clear_into(gradients_);
    }
  }

  const ShardMap& shards_;
  const Stages& stages_;
  const BufferRules& rules_;
  bool gathers_;
  Pool weights_;
  Pool frozen_;
  Pool gradients_;
  std::vector<int> num_open_;
  std::map<int, std::int64_t> gathered_;        ///< by unit, its buffer
  std::map<int, std::int64_t> open_gradients_;  ///< likewise
  OnTheirWay on_their_way_;
};

}  // namespace

std::int64_t pooled_size(std::int64_t count) {
  if (count <= 0) return count;
  const auto step = static_cast<std::int64_t>(
      std::max<std::uint64_t>(1, std::bit_floor(static_cast<std::uint64_t>(count)) / 32));
  return (count + step - 1) / step * step;
}

bool is_used_for(std::int64_t free_size, std::int64_t count) {
  return free_size >= count && free_size <= 2 * pooled_size(count);
}

BufferSizes count_buffers(const ShardMap& shards, const Stages& stages, const BufferRules& rules) {
  Replay replay(shards, stages, rules);
  // Later micro-steps and steps find what earlier ones left in the pools.
  for (int step = 0; step < 2; ++step) {
    replay.micro_step();
    if (rules.accumulation > 1) replay.micro_step();
    replay.finish();
  }
  return replay.sizes();
}

}  // namespace finetune::plan
