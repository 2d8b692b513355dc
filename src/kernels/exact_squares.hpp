#pragma once
// SPDX-License-Identifier: Apache-2.0
// A sum of squares that does not depend on the order, the pieces or the ranks it is added in.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/place.hpp"

namespace finetune::kernels {

/// A non-negative integer times 2^-100, in limbs of 40 bits, the lowest first.
///
/// Ranks add it with an all_reduce of `limbs` (sum; up to 2^20 ranks) followed by `normalize`, and
/// of `in_range` (all). Values below 2^140: 2^64 squares of the largest element.
struct ExactSquares {
  static constexpr int limb_bits = 40;
  static constexpr int unit_bits = 100;

  std::array<std::int64_t, 6> limbs{};
  bool in_range = true;  ///< no element was infinite, NaN or 2^38 and more

  void add(const ExactSquares& other);
  /// Carries, so that every limb is in [0, 2^40): equal sums have equal limbs.
  void normalize();
  /// Of normalized limbs; within 2 units in the last place.
  double value() const;
};

/// Such a sum as its bins were added up, in any order: multiples of 2^32, 2^-12, 2^-56 and 2^-100.
/// Each bin is two numbers, since one would overflow: what is above 2^split_bits, and the rest.
struct SquareBins {
  static constexpr int num_bins = 4;
  static constexpr int split_bits = 22;
  static constexpr double units[num_bins] = {0x1p32, 0x1p-12, 0x1p-56, 0x1p-100};
  /// The first element that is not in range.
  static constexpr double limit = 0x1p38;

  std::array<std::int64_t, num_bins> high{};
  std::array<std::int64_t, num_bins> low{};
  std::int64_t num_bad = 0;  ///< not 0: elements are not in range

  /// Of as many numbers, in this order.
  static constexpr std::size_t num_values = 2 * num_bins + 1;
  using Values = std::span<std::int64_t, num_values>;
  static SquareBins from(std::span<const std::int64_t, num_values> values);
};
ExactSquares sum_of(const SquareBins& bins);

/// Adds the squares of `values` to `bins`, as SquareBins has them: in 2^28 blocks of 4096 elements
/// at most. On a GPU one launch, which reads each element once; its integers may be added in any
/// order.
void add_exact_squares(std::span<const float> values, SquareBins::Values bins,
                       const Place& place = {});

/// The sum of the squares of `values`, each rounded to a multiple of 2^-100 on its own (so elements
/// below 2^-50.5 add nothing). What is not in range is left out, with its neighbours.
///
/// Source of the splitting into bins: Demmel and Nguyen 2013, "Fast reproducible floating-point
/// summation" (ARITH 21).
ExactSquares exact_squared_sum(std::span<const float> values);

}  // namespace finetune::kernels
