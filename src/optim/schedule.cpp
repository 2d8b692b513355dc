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

/// Falls from 1 to 0.
double cosine(double progress) {
  return 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

/// transformers' where there is no warm-up.
constexpr std::int64_t usual_timescale = 10'000;

}  // namespace

Schedule::Schedule(const OptimizerSettings& settings, std::int64_t num_steps)
    : settings_(settings),
      num_steps_(num_steps),
      warmup_steps_(settings.warmup_steps > 0 ? settings.warmup_steps
                                              : part_of(settings.warmup_ratio, num_steps)),
      decay_begin_(warmup_steps_) {
  if (settings.schedule == LrSchedule::wsd)
    decay_begin_ = std::max(warmup_steps_, num_steps - part_of(settings.decay_ratio, num_steps));
  const std::int64_t scale = settings.timescale_steps > 0 ? settings.timescale_steps
                             : warmup_steps_ > 0          ? warmup_steps_
                                                          : usual_timescale;
  scale_ = static_cast<double>(scale);
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
  double left = 0;  // of what lies between lr and the least
  switch (settings_.schedule) {
    case LrSchedule::constant:
      return peak;
    case LrSchedule::inverse_sqrt:
      return std::max(least,
                      peak / std::sqrt(static_cast<double>(step - warmup_steps_) / scale_ + 1));
    case LrSchedule::linear:
    case LrSchedule::wsd:
      left = 1 - progress;
      break;
    case LrSchedule::polynomial:
      left = std::pow(1 - progress, settings_.power);
      break;
    case LrSchedule::cosine:
      left = cosine(progress);
      break;
    case LrSchedule::cosine_with_restarts:
      left = progress < 1
                 ? cosine(std::fmod(static_cast<double>(settings_.num_cycles) * progress, 1.0))
                 : 0;
      break;
  }
  return least + (peak - least) * left;
}

}  // namespace finetune::optim
