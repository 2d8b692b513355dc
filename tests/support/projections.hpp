#pragma once
// SPDX-License-Identifier: Apache-2.0
// Random projections of tensors, as tests/golden/drawn.py computes them, which stand for golden
// tensors that would be too large to keep.
//
// Each element goes with a random sign into one of eight sums, chosen at random, and with another
// sign into one of eight others. Projections are linear, so that ranks add what they have.
//
// How an elementwise bound b carries over: errors d_i of the n elements of a sum add up to an error
// of variance |d|^2 over the signs, at most n b^2, and of more than t |d| with a probability below
// 2 exp(-t^2 / 2) (Hoeffding 1963). A sum may be wrong by 2 b sqrt(n). That is t = 2 if all
// elements err by b, and t = 8 for errors of rounding, whose root mean square is a quarter of the
// largest or less. A tensor that is within b passes for certain where n <= 4.
//
// What is found: errors whose root mean square is beyond about 4 b, as each of 16 sums stays within
// its bound with a probability of 0.38 then (of 2e-7 for all); so whatever changes many elements by
// a good part of their size: permuted rows or heads, transposed matrices, signs. An error e in a
// single element changes two sums by e, so it is found from 2 b sqrt(n) on, n being about an eighth
// of the elements: 4 b in a vector of 32, 45 b in a matrix of 64 x 64.
// What is not: smaller errors in few elements; and two elements that change places where both
// sums and both signs are the same, one pair of 256.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "core/random.hpp"

namespace finetune::tests {

class Projection {
 public:
  static constexpr std::size_t num_sketches = 2, num_sums = 8;
  static constexpr std::size_t size = num_sketches * num_sums;

  /// Element `i` of the tensor.
  void add(std::int64_t i, double value) {
    std::uint64_t bits = key_.bits(static_cast<std::uint64_t>(i));
    for (std::size_t sketch = 0; sketch < num_sketches; ++sketch, bits >>= 4) {
      const std::size_t sum = sketch * num_sums + (bits & 7);
      sums_[sum] += (bits & 8) != 0 ? -value : value;
      counts_[sum] += 1;
    }
  }

  /// Sums, and behind them how many elements each has: what ranks add up.
  std::array<double, 2 * size> numbers() const {
    std::array<double, 2 * size> all{};
    for (std::size_t i = 0; i < size; ++i) {
      all[i] = sums_[i];
      all[size + i] = counts_[i];
    }
    return all;
  }

 private:
  core::RandomKey key_{41, core::RandomUse::test};
  std::array<double, size> sums_{}, counts_{};
};

/// Elements that were added.
inline std::int64_t num_elements(std::span<const double> numbers) {
  double num = 0;
  for (std::size_t i = 0; i < Projection::size; ++i)
    num += numbers[Projection::size + i];
  return std::llround(num) / static_cast<std::int64_t>(Projection::num_sketches);
}

/// How far `numbers` of a Projection are from the golden ones, as part of what a bound of
/// `per_element` allows: above 1 is an error. NaNs are infinitely far.
inline double excess(std::span<const double> numbers, std::span<const float> expected,
                     double per_element) {
  double worst = 0;
  for (std::size_t i = 0; i < Projection::size; ++i) {
    const double difference = std::abs(numbers[i] - static_cast<double>(expected[i]));
    if (difference == 0) continue;
    const double part = difference / (2 * per_element * std::sqrt(numbers[Projection::size + i]));
    if (!(part <= worst)) worst = std::isnan(part) ? HUGE_VAL : part;
  }
  return worst;
}

/// All of a tensor.
inline double excess(std::span<const float> values, std::span<const float> expected,
                     double per_element) {
  Projection projection;
  for (std::size_t i = 0; i < values.size(); ++i)
    projection.add(static_cast<std::int64_t>(i), values[i]);
  return excess(projection.numbers(), expected, per_element);
}

/// How far an element may be from fp32 numbers whose distance from fp64 is `fp64_distance` of the
/// largest: these may be off by that, and ours by twice as much. `least`, of the largest, is about
/// ten times what two correct implementations differ by where a model is well-conditioned.
inline double element_bound(double largest, double fp64_distance, double least = 2e-5) {
  return largest * std::max(least, 3 * fp64_distance);
}

}  // namespace finetune::tests
