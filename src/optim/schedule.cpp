// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace finetune::optim {

Schedule::Schedule(const Settings& settings, std::int64_t num_steps)
    : settings_(settings), num_steps_(num_steps), warmup_steps_(settings.warmup_steps) {
  if (warmup_steps_ == 0) {
    warmup_steps_ = static_cast<std::int64_t>(
        std::ceil(settings.warmup_ratio * static_cast<double>(num_steps)));
  }
}

double Schedule::lr(std::int64_t step) const {
  const double peak = settings_.lr;
  if (step < warmup_steps_)
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
  if (settings_.schedule == "constant") return peak;
  const double least = peak * settings_.min_lr_ratio;
  const auto decay_steps =
      static_cast<double>(std::max<std::int64_t>(1, num_steps_ - warmup_steps_));
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps_) / decay_steps);
  if (settings_.schedule == "linear") return least + (peak - least) * (1 - progress);
  return least + (peak - least) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace finetune::optim
