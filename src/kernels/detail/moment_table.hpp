#pragma once
// SPDX-License-Identifier: Apache-2.0
// Levels of 8-bit moments and the way to the nearest one.

#include <cstdint>

#include "kernels/adamw8bit.hpp"
#include "kernels/detail/arithmetic.hpp"

namespace finetune::kernels {

/// Numbers in [0, 1] by their sign-less level, in rising order: 129 magnitudes of exp_avg, 256 of
/// exp_avg_sq. Cut into cells by the upper bits of a float; a cell has the middle of two levels in
/// it at most, so one look at it and one comparison of the lower bits give the nearest level.
struct MomentTable {
  /// Cells begin at 2^-24, below the first middle, and there are 128 in each power of two.
  static constexpr std::int32_t cell_shift = 16, first_cell = (127 - 24) << 7;
  static constexpr std::int32_t num_cells = 24 * 128 + 1;
  static constexpr std::uint32_t lower_bits = (1u << cell_shift) - 1;

  float by_code[256];
  alignas(64) std::uint8_t bytes[4][256];  ///< those of by_code, the lowest of each first
  /// A magnitude of exp_avg above it is nearer to -1 than to the level before.
  float between_last;
  /// Upper bits: the nearest level to the beginning of the cell. Lower bits: those of the last
  /// float in the cell to which it still is the nearest.
  std::uint32_t cells[num_cells];

  /// Of a magnitude in [0, 1]; anything for NaN.
  KOKKOS_FORCEINLINE_FUNCTION std::int32_t nearest(float magnitude) const {
    constexpr std::int32_t begin = first_cell << cell_shift;
    constexpr std::int32_t end = (first_cell + num_cells - 1) << cell_shift;
    std::int32_t bits = static_cast<std::int32_t>(bits_of(magnitude));
    bits = bits < begin ? begin : bits;
    bits = bits < end ? bits : end;
    const std::uint32_t cell = cells[(bits >> cell_shift) - first_cell];
    const std::uint32_t lower = static_cast<std::uint32_t>(bits) & lower_bits;
    return static_cast<std::int32_t>(cell >> cell_shift) + (lower > (cell & lower_bits) ? 1 : 0);
  }

  /// The code of exp_avg / scale: levels 0 to 128 are codes 0 to 128, and 129 to 255 lead from -1
  /// up to the largest negative one. There is no level 127 on the negative side.
  KOKKOS_FORCEINLINE_FUNCTION std::uint8_t first_code(float value) const {
    const float magnitude = value < 0.0f ? -value : value;
    const std::int32_t level = nearest(magnitude);
    const std::int32_t below = magnitude > between_last ? 127 : 126;
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
