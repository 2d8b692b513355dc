// SPDX-License-Identifier: Apache-2.0
#include "train/step/noise.hpp"

#include <cmath>

namespace finetune::train {

std::optional<NoiseEstimate> estimate_noise(std::span<const PassGradient> gradients,
                                            double squares) {
  double weight = 0, sum = 0;
  std::int64_t count = 0;
  for (const PassGradient& one : gradients) {
    if (one.weight == 0) continue;
    weight += one.weight;
    sum += one.squares / one.weight;
    ++count;
  }
  const double mean = sum * weight;
  if (count < 2 || !std::isfinite(mean) || !std::isfinite(squares)) return std::nullopt;
  const auto others = static_cast<double>(count - 1);
  return NoiseEstimate{.trace = (mean - squares) * weight / others,
                       .squares = (static_cast<double>(count) * squares - mean) / others,
                       .weight = weight};
}

std::vector<PassGradient> all_passes(const comm::Communicator& ranks,
                                     std::span<const PassGradient> own) {
  const auto size = static_cast<std::size_t>(ranks.size());
  // Each number comes from one rank, and zeros change nothing.
  std::vector<double> numbers(2 * size * own.size(), 0);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const std::size_t at = 2 * (i * size + static_cast<std::size_t>(ranks.rank()));
    numbers[at] = own[i].squares;
    numbers[at + 1] = own[i].weight;
  }
  ranks.all_reduce(std::span(numbers), comm::Reduce::sum);
  std::vector<PassGradient> all;
  for (std::size_t i = 0; i < numbers.size(); i += 2)
    all.push_back({numbers[i], numbers[i + 1]});
  return all;
}

}  // namespace finetune::train
