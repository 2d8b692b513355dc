// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace finetune::optim {

namespace {

/// Rounded up.
std::int64_t part_of(double ratio, std::int64_t num_steps) {
  return static_cast<std::int64_t>(std::ceil(ratio * static_cast<double>(num_steps)));
}

}  // namespace

Schedule::Schedule(const OptimizerSettings& settings, std::int64_t num_steps)
    : settings_(settings),
      num_steps_(num_steps),
      warmup_steps_(settings.warmup_steps > 0 ? settings.warmup_steps
                                              : part_of(settings.warmup_ratio, num_steps)),
      decay_begin_(warmup_steps_) {
  if (settings.schedule == LrSchedule::wsd)
    decay_begin_ = std::max(warmup_steps_, num_steps - part_of(settings.decay_ratio, num_steps));
}

double Schedule::lr(std::int64_t step) const {
  const double peak = settings_.lr;
  if (step < warmup_steps_)
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
  if (step < decay_begin_) return peak;
  const double least = peak * settings_.min_lr_ratio;
  const auto decay_steps =
      static_cast<double>(std::max<std::int64_t>(1, num_steps_ - decay_begin_));
  const double progress = std::min(1.0, static_cast<double>(step - decay_begin_) / decay_steps);
  switch (settings_.schedule) {
    case LrSchedule::constant:
      return peak;
    case LrSchedule::linear:
    case LrSchedule::wsd:
      return least + (peak - least) * (1 - progress);
    case LrSchedule::cosine:
      break;
  }
  return least + (peak - least) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace finetune::optim
