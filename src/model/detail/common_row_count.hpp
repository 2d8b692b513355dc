#pragma once
// SPDX-License-Identifier: Apache-2.0
// The numbers of rows that products of experts are computed of, for these and for their cost.

#include <bit>
#include <cstdint>

namespace finetune::model {

/// `count`, or a few more: one of at most 16 numbers up to twice a number, and none more than an
/// eighth above `count`. Small ones stay as they are. From 256 on they are multiples of 32, which
/// is what the processor's matrix units take at once of bf16.
constexpr std::int64_t common_row_count(std::int64_t count) {
  constexpr std::uint64_t numbers = 16, large = 512, numbers_of_large = 32;
  const std::uint64_t power = std::bit_ceil(static_cast<std::uint64_t>(count));
  if (power <= numbers) return count;
  const auto multiple =
      static_cast<std::int64_t>(power / (power > large ? numbers_of_large : numbers));
  return (count + multiple - 1) / multiple * multiple;
}

}  // namespace finetune::model
