#pragma once
// SPDX-License-Identifier: Apache-2.0
// Floating numbers as 64-bit integers, whose sums do not depend on the order of additions.

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// A number is an integer times 2^-scale_bits.
///
/// Magnitudes from `limit` on are out of range. Whoever adds n numbers keeps n * limit *
/// 2^scale_bits below 2^63; then no sum can wrap.
struct FixedPoint {
  int scale_bits = 40;
  float limit = 2048.0f;  ///< at most 2^(62 - scale_bits)
};

// All spans of a call have the same size (else ErrorKind::bug). T: float, bf16 or f16.

/// target = values * 2^scale_bits, rounded to nearest, ties to even.
///
/// Returns the index of the first element that is not finite or out of range, or -1. If there is
/// one, `target` holds numbers without meaning.
template <class T>
std::int64_t to_fixed(std::span<const T> values, const FixedPoint& format,
                      std::span<std::int64_t> target);

/// As to_fixed, but adds to `sum`, which must stay within 63 bits (see FixedPoint).
template <class T>
std::int64_t add_fixed(std::span<const T> values, const FixedPoint& format,
                       std::span<std::int64_t> sum);

/// The first element that is out of range, by index, in one number that threads of a GPU can lower:
/// the index, below 2^32, and the bits of the value.
struct FirstOutOfRange {
  /// There is none.
  static constexpr std::int64_t none = -1;

  std::int64_t element;
  float value;

  static std::optional<FirstOutOfRange> from(std::int64_t found);
};

/// The same two where `place` is, by one launch on a GPU, where nobody waits for an answer:
/// `found`, one number of that memory, becomes what was found, if it is none or of a later element.
template <class T>
void to_fixed(std::span<const T> values, const FixedPoint& format, std::span<std::int64_t> target,
              std::span<std::int64_t, 1> found, const Place& place);
template <class T>
void add_fixed(std::span<const T> values, const FixedPoint& format, std::span<std::int64_t> sum,
               std::span<std::int64_t, 1> found, const Place& place);

/// target = values * 2^-scale_bits, rounded to fp64 and then to fp32.
void from_fixed(std::span<const std::int64_t> values, int scale_bits, std::span<float> target,
                const Place& place = {});

/// sum += terms, modulo 2^64.
void add(std::span<const std::int64_t> terms, std::span<std::int64_t> sum);

}  // namespace finetune::kernels
