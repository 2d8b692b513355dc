#pragma once
// SPDX-License-Identifier: Apache-2.0
// How a number differs between ranks.

#include <algorithm>
#include <vector>

namespace finetune::metrics {

struct Spread {
  double min = 0, median = 0, max = 0;
};

/// Of one value or more.
inline Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {values.front(), values[values.size() / 2], values.back()};
}

}  // namespace finetune::metrics
