// SPDX-License-Identifier: Apache-2.0
#include "data/steps/split.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "core/random.hpp"

namespace finetune::data {

Split split(const Dataset& dataset, double fraction, std::uint64_t seed) {
  core::check(fraction > 0 && fraction < 1, "a validation fraction lies between 0 and 1");
  const std::int64_t num_samples = dataset.num_samples();
  const auto num_validation =
      static_cast<std::int64_t>(std::ceil(fraction * static_cast<double>(num_samples)));
  if (num_validation >= num_samples) {
    core::fail(core::ErrorKind::deck,
               {"data.validation_fraction",
                fmt::format("takes all {} samples for validation", num_samples),
                "none is left to train on", "Use a smaller fraction, or data.validation_path."});
  }
  // Epochs are numbered from 0, so the last number is free for this choice.
  const core::Permutation order(
      core::RandomKey(seed, core::RandomUse::shuffle, std::numeric_limits<std::uint64_t>::max()),
      num_samples);
  std::vector<std::int64_t> chosen;
  chosen.reserve(static_cast<std::size_t>(num_validation));
  for (std::int64_t i = 0; i < num_validation; ++i)
    chosen.push_back(order(i));
  std::ranges::sort(chosen);
  return {dataset.without(chosen), dataset.subset(chosen)};
}

}  // namespace finetune::data
