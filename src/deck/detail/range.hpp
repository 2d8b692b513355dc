#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether a number is allowed, and which ones are, in words.

#include <fmt/format.h>

#include <string>

#include "deck/row.hpp"
#include "deck/value.hpp"

namespace finetune::deck {

template <typename T>
bool contains(const Range<T>& range, T value) {
  if (range.zero_is_auto && value == 0) return true;
  return !(range.min && value < *range.min) && !(range.max && value > *range.max) &&
         !(range.above && value <= *range.above) && !(range.below && value >= *range.below);
}

/// "from 0 to 1", "at least 1", "above 0 and below 1"; empty for no limits. The 0 that is written
/// "auto" is outside of the limits that people read.
template <typename T>
std::string describe(const Range<T>& range) {
  std::string low;
  std::string high;
  if (range.min) low = fmt::format("at least {}", to_toml(*range.min));
  if (range.above) low = fmt::format("above {}", to_toml(*range.above));
  if (range.max) high = fmt::format("at most {}", to_toml(*range.max));
  if (range.below) high = fmt::format("below {}", to_toml(*range.below));
  const std::string text =
      range.min && range.max
          ? fmt::format("from {} to {}", to_toml(*range.min), to_toml(*range.max))
          : low + (low.empty() || high.empty() ? "" : " and ") + high;
  return range.zero_is_auto ? text + ", or \"auto\"" : text;
}

}  // namespace finetune::deck
