// SPDX-License-Identifier: Apache-2.0
#include "plot/scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace finetune::plot {
namespace {

/// The largest of 1, 2, 5 and 10 times a power of ten that is not below `least`.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

/// Labels of one axis have the same digits behind the point.
std::vector<Tick> linear_ticks(const Scale& scale, int count) {
  const double step = round_step((scale.high - scale.low) / std::max(1, count));
  const double largest = std::max(std::abs(scale.low), std::abs(scale.high));
  const int digits = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  std::vector<Tick> out;
  for (double i = std::ceil(scale.low / step - 1e-9); i * step <= scale.high + 1e-9 * step; ++i) {
    const double value = i == 0 ? 0 : i * step;
    const bool is_plain = largest < 10'000 && digits <= 4;
    out.push_back({value, is_plain ? fmt::format("{:.{}f}", value, digits) : short_number(value)});
  }
  return out;
}

std::vector<Tick> logarithmic_ticks(const Scale& scale, int count) {
  const int first = static_cast<int>(std::floor(std::log10(scale.low))),
            last = static_cast<int>(std::ceil(std::log10(scale.high)));
  const int decades = last - first + 1;
  const int every = std::max(1, (decades + count - 1) / std::max(1, count));
  const bool has_between = 3 * std::log10(scale.high / scale.low) <= count + 1;
  std::vector<Tick> out;
  for (int power = first; power <= last; ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const bool is_wanted = factor == 1 ? power % every == 0 : has_between;
      const double value = factor * std::pow(10, power);
      if (is_wanted && value >= scale.low * (1 - 1e-9) && value <= scale.high * (1 + 1e-9))
        out.push_back({value, short_number(value)});
    }
  }
  return out.size() >= 2 ? out : linear_ticks(scale, count);
}

}  // namespace

double Scale::place(double value) const {
  if (spacing == Spacing::linear) return (value - low) / (high - low);
  return std::log(value / low) / std::log(high / low);
}

Scale scale_of(std::span<const double> values, Spacing spacing, double margin) {
  const bool is_log = spacing == Spacing::logarithmic;
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const double value : values) {
    if (!std::isfinite(value) || (is_log && value <= 0)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) return {is_log ? 0.1 : 0.0, 1.0, spacing};
  if (is_log) {
    if (high <= low * 1.0001) return {low / 2, high * 2, spacing};
    const double factor = std::pow(high / low, margin);
    return {low / factor, high * factor, spacing};
  }
  if (high - low <= 1e-9 * std::max(std::abs(low), std::abs(high)) || high == low) {
    const double around = low == 0 ? 1 : std::abs(low) / 2;
    return {low - around, high + around, spacing};
  }
  const double extra = margin * (high - low);
  // What is never negative does not begin below zero.
  return {low >= 0 ? std::max(0.0, low - extra) : low - extra, high + extra, spacing};
}

std::vector<Tick> ticks(const Scale& scale, int count) {
  return scale.spacing == Spacing::linear ? linear_ticks(scale, count)
                                          : logarithmic_ticks(scale, count);
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 1e15) return fmt::format("{:.2e}", value);
  if (size >= 1e12) return fmt::format("{:.3g}T", value / 1e12);
  if (size >= 1e9) return fmt::format("{:.3g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.3g}k", value / 1e3);
  if (size >= 1e3) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

}  // namespace finetune::plot
