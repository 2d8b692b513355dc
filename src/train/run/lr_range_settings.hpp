#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which learning rates a range test tries.

#include <cmath>
#include <cstdint>

namespace finetune::train {

struct LrRange {
  double from = 1e-7;
  double to = 1;
  std::int64_t num_steps = 100;
  double stop_factor = 4;  ///< ends once the smoothed loss is so many times its least

  /// Of step 0, 1, ... num_steps - 1: geometric, the first `from`, the last `to`.
  double lr(std::int64_t step) const {
    if (num_steps < 2) return from;
    if (step + 1 == num_steps) return to;
    return from *
           std::pow(to / from, static_cast<double>(step) / static_cast<double>(num_steps - 1));
  }
};

}  // namespace finetune::train
