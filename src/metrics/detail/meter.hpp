#pragma once
// SPDX-License-Identifier: Apache-2.0
// Step times, and what they say about the time that is left.

#include <cstdint>
#include <vector>

namespace finetune::metrics {

/// Remembers the last steps' seconds. The median is not moved by a slow first step, a checkpoint or
/// a pause of the machine.
class Meter {
 public:
  void add(double step_s);

  /// 0 before the first step.
  double median_step_s() const;
  double seconds_left(std::int64_t steps_left) const;

 private:
  std::vector<double> recent_;  ///< a ring of the last steps
  std::size_t next_ = 0;
};

}  // namespace finetune::metrics
