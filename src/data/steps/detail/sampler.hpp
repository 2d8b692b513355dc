#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which sequences each optimizer step takes: arithmetic on the step's number, so that a position in
// the data is one integer and a restart costs nothing.

#include <cstdint>
#include <vector>

namespace finetune::data {

enum class SampleOrder { shuffled, as_read };

/// One of several data sets: each epoch passes `weight` times over its sequences.
struct SampledSet {
  std::int64_t size = 0;  ///< sequences, at least 1
  double weight = 1;      ///< above 0
};

/// Every epoch takes round(weight * size) sequences of every set, at least one: with a weight of 2
/// each twice, with 0.5 half of them, and the other half in the next epoch. The last batch of an
/// epoch may be smaller. The order depends on (seed, epoch) alone, never on ranks or on earlier
/// calls, and takes no memory: it is computed, not drawn. With `block` > 0 sequences that are
/// neighbours stay near each other (BlockShuffle).
class Sampler {
 public:
  /// global_batch > 0 (sequences an optimizer step).
  Sampler(const std::vector<SampledSet>& sets, std::int64_t global_batch, std::uint64_t seed,
          SampleOrder order, std::int64_t block = 0);

  /// One set that an epoch passes over once.
  Sampler(std::int64_t size, std::int64_t global_batch, std::uint64_t seed, SampleOrder order,
          std::int64_t block = 0)
      : Sampler({{size, 1}}, global_batch, seed, order, block) {}

  std::int64_t steps_per_epoch() const { return (epoch_size_ - 1) / global_batch_ + 1; }
  std::int64_t epoch(std::int64_t step) const { return step / steps_per_epoch(); }
  /// Sequences of an epoch.
  std::int64_t epoch_size() const { return epoch_size_; }
  /// Epochs that are done after `steps` steps: 1.25 is one and a quarter of the second.
  double epochs_after(std::int64_t steps) const;
  /// Whether step `steps`, counted from 1, is the first after which another `epochs` of them are
  /// done: every 0.5 or 2, for example. Never with 0.
  bool ends_interval(double epochs, std::int64_t steps) const;

  /// Sequences of optimizer step `step` >= 0, in order, numbered through all sets.
  std::vector<std::int64_t> batch(std::int64_t step) const;

 private:
  struct Set {
    std::int64_t first_index;  ///< of its sequences
    std::int64_t size;
    std::int64_t first_draw;  ///< of its draws in an epoch
    std::int64_t draws;
  };

  std::int64_t sequence(std::int64_t epoch, std::int64_t draw) const;

  std::vector<Set> sets_;
  std::int64_t epoch_size_ = 0;
  std::int64_t global_batch_;
  std::uint64_t seed_;
  SampleOrder order_;
  std::int64_t block_;
};

}  // namespace finetune::data
