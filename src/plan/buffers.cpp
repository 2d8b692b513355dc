// SPDX-License-Identifier: Apache-2.0
#include "plan/buffers.hpp"

#include <algorithm>
#include <map>
#include <optional>
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

/// Replays micro-steps. Units are numbered in the order of the forward pass: the embedding, blocks,
/// the head.
class Replay {
 public:
  Replay(const ShardMap& shards, const BufferRules& rules)
      : shards_(shards),
        rules_(rules),
        gathers_(shards.num_shards() > 1),
        last_(static_cast<int>(shards.units().size()) - 1) {}

  void micro_step() {
    forward();
    head();
    for (int unit = last_ - 1; unit > 0; --unit)
      block_backward(unit);
    open_gradient(0);
    reduce(0);
    release_in_flight();
  }

  /// The whole model is one unit: it is open from the first gather to the last gradient.
  void whole_model() {
    open(0);
    open_gradient(0);
    reduce(0);
    close(0);
    release_in_flight();
  }

  BufferElements elements() const { return {most_gathered_, pool_.total() - most_gathered_}; }

 private:
  void forward() {
    for (int unit = 0; unit < last_; ++unit) {
      open(unit);
      if (rules_.overlaps) open_stage(unit + 1);
      // The last block stays open: backward begins with it.
      if (unit != last_ - 1 || unit == 0) close(unit);
    }
  }

  /// Units that a stage reads: the head, if tied, the embedding as well.
  void open_stage(int unit) {
    open(unit);
    if (unit == last_ && rules_.tied_embeddings) open(0);
  }

  void head() {
    open_stage(last_);
    open_gradient(last_);
    if (rules_.tied_embeddings) open_gradient(0);
    close(last_);
    if (rules_.tied_embeddings) close(0);
    reduce(last_);
  }

  void block_backward(int unit) {
    open(unit);
    if (rules_.overlaps && unit > 1) open(unit - 1);
    open_gradient(unit);
    reduce(unit);
    close(unit);
  }

  std::int64_t padded(int unit) const {
    return shards_.units()[static_cast<std::size_t>(unit)].padded_count(shards_.num_shards());
  }

  void open(int unit) {
    if (!gathers_ || gathered_.contains(unit)) return;
    gathered_[unit] = pool_.take(padded(unit));
    std::int64_t now = 0;
    for (const auto& [ignored, whole] : gathered_)
      now += whole;
    most_gathered_ = std::max(most_gathered_, now);
  }

  void close(int unit) {
    if (rules_.sharding == Sharding::shard_grad_op || !gathered_.contains(unit)) return;
    pool_.put(gathered_.at(unit));
    gathered_.erase(unit);
  }

  void open_gradient(int unit) {
    if (rules_.sums_in_place || gradients_.contains(unit)) return;
    gradients_[unit] = pool_.take(padded(unit));
  }

  /// The gradient is on its way until the next one is.
  void reduce(int unit) {
    if (rules_.sums_in_place) return;
    release_in_flight();
    in_flight_ = gradients_.at(unit);
    gradients_.erase(unit);
    if (!rules_.overlaps || !gathers_) release_in_flight();
  }

  void release_in_flight() {
    if (in_flight_) pool_.put(*in_flight_);
    in_flight_.reset();
  }

  const ShardMap& shards_;
  const BufferRules& rules_;
  bool gathers_;
  int last_;
  Pool pool_;
  std::map<int, std::int64_t> gathered_;   ///< by unit, its buffer
  std::map<int, std::int64_t> gradients_;  ///< likewise
  std::optional<std::int64_t> in_flight_;
  std::int64_t most_gathered_ = 0;
};

}  // namespace

BufferElements count_buffers(const ShardMap& shards, const BufferRules& rules) {
  Replay replay(shards, rules);
  // The second finds what the first left in the pool, as every later one does.
  for (int i = 0; i < 2; ++i) {
    if (shards.units().size() == 1) {
      replay.whole_model();
    } else {
      replay.micro_step();
    }
  }
  return replay.elements();
}

}  // namespace finetune::plan
