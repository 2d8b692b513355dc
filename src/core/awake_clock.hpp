#pragma once
// SPDX-License-Identifier: Apache-2.0
// A clock that stands still with the process that looks at it.

#include <algorithm>

#include "core/clock.hpp"

namespace finetune::core {

/// Counts the time in which its owner runs: a pause longer than `longest_s` between two looks is
/// one in which this process was stopped, and others probably too.
class AwakeClock {
 public:
  explicit AwakeClock(double longest_s) : longest_s_(longest_s) {}
  /// Whether this process was stopped since the last look.
  bool look() {
    const double passed_s = watch_.seconds();
    seconds_ += std::min(passed_s, longest_s_);
    watch_.restart();
    return passed_s > longest_s_;
  }
  double seconds() const { return seconds_; }

 private:
  Stopwatch watch_;
  double longest_s_;
  double seconds_ = 0;
};

}  // namespace finetune::core
