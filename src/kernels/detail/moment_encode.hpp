#pragma once
// SPDX-License-Identifier: Apache-2.0
// Inside kernels of the host: a block of 8-bit moments becomes codes and a scale.

#include <cmath>
#include <cstdint>

#include "kernels/detail/adamw8bit_team.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/moment_table.hpp"

namespace finetune::kernels::of_8_bits {

KOKKOS_FORCEINLINE_FUNCTION Scale scale_of(const float* values, std::int64_t count) {
  return Scale::from(lane_max(count, [&](std::int64_t i) { return std::abs(values[i]); }));
}

/// -> The scale.
KOKKOS_FORCEINLINE_FUNCTION float encode_first(const MomentTable& table, const float* values,
                                               std::int64_t count, std::uint8_t* codes) {
  const Scale by = scale_of(values, count);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = table.first_code(values[i] * by.reciprocal);
  return by.scale;
}

/// -> The scale.
KOKKOS_FORCEINLINE_FUNCTION float encode_second(const MomentTable& table, const float* values,
                                                std::int64_t count, std::uint8_t* codes) {
  const Scale by = scale_of(values, count);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = table.second_code(values[i] * by.reciprocal);
  return by.scale;
}

}  // namespace finetune::kernels::of_8_bits
