#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which samples each optimizer step takes: arithmetic on the step's number, so that a position in
// the data is one integer and a restart costs nothing.

#include <cstdint>
#include <vector>

namespace finetune::data {

enum class Order { shuffled, as_read };

/// Every epoch visits every sample once; the last batch of an epoch may be smaller. The order
/// depends on (seed, epoch) alone, never on ranks or on earlier calls.
class Sampler {
 public:
  /// num_samples > 0, global_batch > 0 (samples an optimizer step).
  Sampler(std::int64_t num_samples, std::int64_t global_batch, std::uint64_t seed, Order order);

  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t epoch(std::int64_t step) const { return step / steps_per_epoch_; }

  /// Sample indices of optimizer step `step` >= 0, in order. Keeps the permutation of the last
  /// epoch asked for.
  std::vector<std::int64_t> batch(std::int64_t step);

 private:
  std::int64_t num_samples_;
  std::int64_t global_batch_;
  std::uint64_t seed_;
  Order order_;
  std::int64_t steps_per_epoch_;
  std::int64_t cached_epoch_ = -1;
  std::vector<std::int64_t> permutation_;
};

}  // namespace finetune::data
