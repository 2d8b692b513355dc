// SPDX-License-Identifier: Apache-2.0
#include "data/sampler.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "core/random.hpp"

namespace finetune::data {

Sampler::Sampler(std::int64_t num_samples, std::int64_t global_batch, std::uint64_t seed,
                 Order order)
    : num_samples_(num_samples), global_batch_(global_batch), seed_(seed), order_(order) {
  core::check(num_samples > 0 && global_batch > 0, "a sampler has samples and a batch size");
  steps_per_epoch_ = (num_samples - 1) / global_batch + 1;
}

std::vector<std::int64_t> Sampler::batch(std::int64_t step) {
  core::check(step >= 0, "steps count from 0");
  const std::int64_t begin = step % steps_per_epoch_ * global_batch_;
  const std::int64_t end = begin + std::min(global_batch_, num_samples_ - begin);
  if (order_ == Order::as_read) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(end - begin));
    std::iota(indices.begin(), indices.end(), begin);
    return indices;
  }
  if (epoch(step) != cached_epoch_) {
    cached_epoch_ = epoch(step);
    const core::RandomKey key(seed_, core::RandomUse::shuffle,
                              static_cast<std::uint64_t>(cached_epoch_));
    permutation_ = core::permutation(key, num_samples_);
  }
  return {permutation_.begin() + begin, permutation_.begin() + end};
}

}  // namespace finetune::data
