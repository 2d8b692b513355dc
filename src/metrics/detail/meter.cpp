// SPDX-License-Identifier: Apache-2.0
#include "metrics/detail/meter.hpp"

#include <algorithm>

namespace finetune::metrics {
namespace {

constexpr std::size_t remembered = 101;

}  // namespace

void Meter::add(double step_s) {
  if (recent_.size() < remembered) {
    recent_.push_back(step_s);
    return;
  }
  recent_[next_] = step_s;
  next_ = (next_ + 1) % remembered;
}

double Meter::median_step_s() const {
  if (recent_.empty()) return 0;
  std::vector<double> sorted = recent_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  if (sorted.size() % 2 == 1) return *middle;
  return (*std::max_element(sorted.begin(), middle) + *middle) / 2;
}

double Meter::seconds_left(std::int64_t steps_left) const {
  return median_step_s() * static_cast<double>(steps_left);
}

}  // namespace finetune::metrics
