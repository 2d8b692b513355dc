#pragma once
// SPDX-License-Identifier: Apache-2.0
// Levels of 8-bit moments and the way to the nearest one. Private to src/kernels.

#include <cstdint>

#include "kernels/adamw8bit.hpp"
#include "kernels/arithmetic.hpp"

namespace finetune::kernels {

/// Numbers in [0, 1] by their sign-less level, in rising order: 129 magnitudes of exp_avg, 256 of
/// exp_avg_sq. Cut into cells by the upper bits of a float; a cell has the middle of two levels in
/// it at most, so one look at it and one comparison give the nearest level.
struct MomentTable {
  /// Cells begin at 2^-24, below the first middle, and there are 128 in each power of two.
  static constexpr std::int32_t cell_shift = 16, first_cell = (127 - 24) << 7;
  static constexpr std::int32_t num_cells = 24 * 128 + 1;

  float by_code[256];
  float middles[256];              ///< between level i and i + 1; infinite after the last
  std::int32_t levels[num_cells];  ///< the nearest level to the beginning of the cell

  /// Of a magnitude in [0, 1]; anything for NaN.
  KOKKOS_FORCEINLINE_FUNCTION std::int32_t nearest(float magnitude) const {
    std::int32_t cell = static_cast<std::int32_t>(bits_of(magnitude) >> cell_shift) - first_cell;
    cell = cell < 0 ? 0 : cell;
    cell = cell < num_cells ? cell : num_cells - 1;
    const std::int32_t level = levels[cell];
    return level + (middles[level] < magnitude ? 1 : 0);
  }

  /// The code of exp_avg / scale: levels 0 to 128 are codes 0 to 128, and 129 to 255 lead from -1
  /// up to the largest negative one. There is no level 127 on the negative side.
  KOKKOS_FORCEINLINE_FUNCTION std::uint8_t first_code(float value) const {
    const float magnitude = value < 0.0f ? -value : value;
    const std::int32_t level = nearest(magnitude);
    const std::int32_t below = magnitude > 0.5f * (-by_code[130] - by_code[129]) ? 127 : 126;
    const std::int32_t negative = 256 - (level < 127 ? level : below);
    return static_cast<std::uint8_t>(value < 0.0f ? negative : level);
  }

  /// The code of exp_avg_sq / scale.
  KOKKOS_FORCEINLINE_FUNCTION std::uint8_t second_code(float value) const {
    const std::int32_t level = nearest(value);
    return static_cast<std::uint8_t>(level == 0 && value > 0.0f ? 1 : level);
  }
};

/// The tables, where the host may read them.
const MomentTable& moment_table(Moment moment);

}  // namespace finetune::kernels
