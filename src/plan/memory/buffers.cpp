// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/buffers.hpp"

#include <algorithm>
#include <bit>
#include <deque>
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

/// What shard::ModelShards and shard::Gradients take of their pools as a step's events say.
class BufferLedger {
 public:
  BufferLedger(const ShardMap& shards, const BufferRules& rules)
      : shards_(shards),
        overlaps_(rules.schedule.overlaps()),
        sums_in_place_(rules.sums_in_place),
        alone_(rules.alone) {}

  void run(const std::vector<schedule::Event>& events) {
    for (const schedule::Event& event : events)
      run(event);
  }

  BufferSizes sizes() const { return {weights_.total(), bytes_.total(), gradients_.total()}; }

 private:
  void run(const schedule::Event& event) {
    using enum schedule::Action;
    switch (event.action) {
      case gather:
      case open:
        return this->gather(event.index);
      case release:
        return this->release(event.index);
      case open_gradient:
        return this->open_gradient(event.index);
      case reduce:
      case reduce_last:
        return this->reduce(event.index);
      case finish:
        return all_arrive();
      case close:
      case forward:
      case forward_kept:
      case again:
      case loss:
      case backward:
      case offload:
      case drop:
      case bring_back:
      case fetch:
      case update:
      case publish:
        return;
    }
  }

  /// Elements; bytes of a unit that is gathered byte by byte.
  std::int64_t padded(int unit) const { return shards_.unit(unit).padded_count(); }
  bool gathers(int unit) const {
    return shards_.unit(unit).num_shards > 1 || alone_ == Alone::communicates;
  }
  Pool& pool_of(int unit) { return shards_.unit(unit).is_in_bytes() ? bytes_ : weights_; }

  void gather(int unit) {
    if (gathers(unit) && !gathered_.contains(unit))
      gathered_[unit] = pool_of(unit).take(padded(unit));
  }

  void release(int unit) {
    const auto found = gathered_.find(unit);
    if (found == gathered_.end()) return;
    pool_of(unit).put(found->second);
    gathered_.erase(found);
  }

  /// Two gradients at most are on their way while the next is computed.
  void open_gradient(int unit) {
    if (sums_in_place_) return;
    while (on_their_way_.size() >= 2)
      oldest_arrives();
    open_gradients_[unit] = gradients_.take(padded(unit));
  }

  void reduce(int unit) {
    if (sums_in_place_) return;
    const std::int64_t buffer = open_gradients_.at(unit);
    open_gradients_.erase(unit);
    if (!gathers(unit)) return gradients_.put(buffer);
    on_their_way_.push_back(buffer);
    if (!overlaps_) all_arrive();
  }

  void oldest_arrives() {
    gradients_.put(on_their_way_.front());
    on_their_way_.pop_front();
  }
  void all_arrive() {
    while (!on_their_way_.empty())
      oldest_arrives();
  }

  const ShardMap& shards_;
  bool overlaps_;
  bool sums_in_place_;
  Alone alone_;
  Pool weights_;
  Pool bytes_;
  Pool gradients_;
  std::map<int, std::int64_t> gathered_;        ///< by unit, its buffer
  std::map<int, std::int64_t> open_gradients_;  ///< likewise
  std::deque<std::int64_t> on_their_way_;       ///< buffers of gradients
};

/// Memory that is taken again by what needs as much.
class PinnedPool {
 public:
  std::int64_t take(std::int64_t bytes) {
    const std::int64_t whole = pinned_bytes(bytes);
    if (free_[whole] > 0)
      --free_[whole];
    else
      total_ += whole;
    return whole;
  }
  void put(std::int64_t whole) { ++free_[whole]; }
  std::int64_t total() const { return total_; }

 private:
  std::map<std::int64_t, int> free_;  ///< by size
  std::int64_t total_ = 0;
};

}  // namespace

std::int64_t pinned_bytes(std::int64_t bytes) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

std::int64_t offloaded_host_bytes(std::int64_t bytes) {
  const std::int64_t rest = bytes % offloaded_piece_bytes;
  return bytes - rest + (rest > 0 ? pinned_bytes(rest) : 0);
}

HostBuffers count_host_buffers(const ShardMap& shards, std::int64_t compute_bytes) {
  std::vector<int> trained;
  for (int unit = 0; unit < std::ssize(shards.units()); ++unit)
    if (shards.unit(unit).trainable) trained.push_back(unit);
  PinnedPool gradients, weights;
  std::deque<std::int64_t> fetched, published;
  for (const schedule::Event& event : schedule::make_update(trained, {.offloads = true})) {
    const UnitLayout& unit = shards.unit(event.index);
    const std::int64_t count = unit.shard_size;
    if (event.action == schedule::Action::fetch) {
      fetched.push_back(gradients.take(count * std::int64_t{sizeof(float)}));
    } else if (event.action == schedule::Action::update && !unit.in_8_bits) {
      while (published.size() >= schedule::units_on_their_way) {
        weights.put(published.front());
        published.pop_front();
      }
      published.push_back(weights.take(count * compute_bytes));
    } else if (event.action == schedule::Action::publish) {
      gradients.put(fetched.front());
      fetched.pop_front();
    }
  }
  return {gradients.total(), weights.total()};
}

std::int64_t pooled_size(std::int64_t count) {
  if (count <= 0) return count;
  const auto step = static_cast<std::int64_t>(
      std::max<std::uint64_t>(1, std::bit_floor(static_cast<std::uint64_t>(count)) / 32));
  return (count + step - 1) / step * step;
}

bool is_used_for(std::int64_t free_size, std::int64_t count) {
  return free_size >= count && free_size <= 2 * pooled_size(count);
}

std::int64_t count_sums(const ShardMap& shards, const schedule::Stages& stages,
                        const schedule::Rules& rules) {
  if (!rules.updates_in_backward) return shards.shard_elements();
  std::int64_t now = 0, most = 0;
  for (const schedule::Event& event : make_pass(stages, rules, schedule::Pass::last)) {
    const auto size = [&] { return shards.unit(event.index).shard_size; };
    if (event.action == schedule::Action::open_gradient) now += size();
    if (event.action == schedule::Action::publish) now -= size();
    most = std::max(most, now);
  }
  return most;
}

BufferSizes count_buffers(const ShardMap& shards, const schedule::Stages& stages,
                          const BufferRules& rules) {
  const schedule::StepEvents events = make_step(stages, rules.schedule);
  BufferLedger ledger(shards, rules);
  // Later passes and steps find what earlier ones left in the pools.
  for (int step = 0; step < 2; ++step) {
    if (rules.accumulation > 1) ledger.run(events.pass);
    ledger.run(events.last);
    ledger.run(events.end);
    ledger.run(events.update);
  }
  return ledger.sizes();
}

}  // namespace finetune::plan
