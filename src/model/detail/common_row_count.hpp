#pragma once
// SPDX-License-Identifier: Apache-2.0
// The numbers of rows that products of experts are computed of, for these and for their cost.

#include <bit>
#include <cstdint>

namespace finetune::model {

/// `count`, or a few more: one of at most eight numbers up to twice a number, and none more than an
/// eighth above `count`. Small ones stay as they are.
constexpr std::int64_t common_row_count(std::int64_t count) {
  constexpr std::uint64_t numbers = 16;  // up to a power of two, half of them above the last one
  const std::uint64_t power = std::bit_ceil(static_cast<std::uint64_t>(count));
  if (power <= numbers) return count;
  const auto multiple = static_cast<std::int64_t>(power / numbers);
  return (count + multiple - 1) / multiple * multiple;
}

}  // namespace finetune::model
