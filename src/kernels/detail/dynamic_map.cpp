// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/dynamic_map.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace finetune::kernels {
namespace {

constexpr int num_decades = 7;

/// Point i of `parts` + 1 evenly spaced ones from 0.1 to 1, rounded once, counted from the nearer
/// end: as torch.linspace does it.
float point(int i, int parts) {
  const float first = 0.1f, last = 1.0f, step = (last - first) / static_cast<float>(parts);
  const bool is_low = i < (parts + 1) / 2;
  return static_cast<float>(is_low ? double{first} + double{step} * i
                                   : double{last} - double{step} * (parts - i));
}

}  // namespace

std::array<float, 256> dynamic_map(Sign sign) {
  std::array<float, 256> levels{};  // one of them stays 0
  std::size_t count = 1;
  for (int decade = 0; decade < num_decades; ++decade) {
    const auto power = static_cast<float>(std::pow(10.0, decade + 1 - num_decades));
    const int parts = (sign == Sign::both ? 1 : 2) << decade;
    for (int i = 0; i < parts; ++i) {
      const float level = power * ((point(i, parts) + point(i + 1, parts)) / 2.0f);
      levels[count++] = level;
      if (sign == Sign::both) levels[count++] = -level;
    }
  }
  levels[count] = 1.0f;
  std::sort(levels.begin(), levels.end());
  return levels;
}

}  // namespace finetune::kernels
