#pragma once
// SPDX-License-Identifier: Apache-2.0
// Inside kernels: conversions to and from fp32, the exponential, and sums over a row in a fixed
// order.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/detail/functions.hpp"
#include "kernels/element.hpp"

namespace finetune::kernels {

KOKKOS_FORCEINLINE_FUNCTION std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

KOKKOS_FORCEINLINE_FUNCTION std::int64_t bits_of(double value) {
  std::int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

KOKKOS_FORCEINLINE_FUNCTION float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

KOKKOS_FORCEINLINE_FUNCTION float to_float(float value) {
  return value;
}
KOKKOS_FORCEINLINE_FUNCTION float to_float(bf16 bits) {
  return float_of(static_cast<std::uint32_t>(bits) << 16);
}

/// Exact. The product moves the exponent to fp32's bias, also that of subnormals.
KOKKOS_FORCEINLINE_FUNCTION float to_float(f16 value) {
  const std::uint32_t bits = value.bits, magnitude = (bits & 0x7FFFu) << 13;
  const std::uint32_t finite = bits_of(float_of(magnitude) * 0x1p112f);
  const std::uint32_t special = magnitude | 0x7F800000u;
  return float_of((magnitude >= 0x0F800000u ? special : finite) | (bits & 0x8000u) << 16);
}

/// Rounds to nearest, ties to even; NaN stays NaN. Same results as core::float_to_bf16 and
/// core::float_to_f16, which device code cannot call.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION T round_to(float value);
template <>
KOKKOS_FORCEINLINE_FUNCTION float round_to<float>(float value) {
  return value;
}
template <>
KOKKOS_FORCEINLINE_FUNCTION bf16 round_to<bf16>(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<bf16>((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
}

template <>
KOKKOS_FORCEINLINE_FUNCTION f16 round_to<f16>(float value) {
  const std::uint32_t bits = bits_of(value), magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t normal = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  // Below 2^-14, one unit of a half is one unit of a float near 0.5: the sum rounds.
  const std::uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  std::uint32_t rounded = magnitude < 0x38800000u ? subnormal : normal;
  rounded = magnitude >= 0x477FF000u ? 0x7C00u : rounded;  // half of the step above 65504
  rounded = magnitude > 0x7F800000u ? 0x7E00u : rounded;
  return f16{static_cast<std::uint16_t>(rounded | (bits >> 16 & 0x8000u))};
}

/// exp(x) for x <= 88; exactly 0 below -87 and for -infinity, NaN for NaN. Error below 2 ulp.
///
/// x = n ln2 + r with |r| <= ln2 / 2, exp(r) by a polynomial fitted for least relative error.
/// Branch-free so that loops over it become vector code on every compiler we know.
KOKKOS_FORCEINLINE_FUNCTION float exp_bounded(float x) {
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the mantissa.
  constexpr float to_integer = 12582912.0f;
  constexpr std::uint32_t to_integer_bits = 0x4B400000u;
  // The upper part of ln2 has 16 bits, so that its product with n is exact.
  constexpr float ln2_high = 0.693145751953125f, ln2_low = 1.42860677e-6f;
  const float shifted = x * 1.44269504f + to_integer;
  const float n = shifted - to_integer;
  const float r = (x - n * ln2_high) - n * ln2_low;
  float q = 1.38144672e-3f;
  q = q * r + 8.36878084e-3f;
  q = q * r + 4.16683927e-2f;
  q = q * r + 1.66665196e-1f;
  q = q * r + 4.99999940e-1f;
  const float power_of_two = float_of((bits_of(shifted) - to_integer_bits + 127u) << 23);
  const float result = (q * (r * r) + r + 1.0f) * power_of_two;
  return x < -87.0f ? 0.0f : result;
}

/// 1 / (1 + exp(-x)).
KOKKOS_FORCEINLINE_FUNCTION float sigmoid(float x) {
  const float negated = -x;
  return 1.0f / (1.0f + exp_bounded(negated > 87.0f ? 87.0f : negated));
}

/// A row is summed in this many interleaved partial sums. A number of our own, not the width of the
/// machine's vectors: so the order of additions, and with it the result, is the same everywhere.
inline constexpr int num_lanes = 64;

/// The sum of term(0) ... term(count - 1) in type `Sum`, in an order that depends on `count` only.
template <class Sum, class Term>
KOKKOS_FORCEINLINE_FUNCTION Sum lane_sum(std::int64_t count, const Term& term) {
  Sum lanes[num_lanes] = {};
  std::int64_t i = 0;
  for (; i + num_lanes <= count; i += num_lanes) {
    for (int lane = 0; lane < num_lanes; ++lane)
      lanes[lane] += term(i + lane);
  }
  for (int lane = 0; i < count; ++i, ++lane)
    lanes[lane] += term(i);
  for (int half = num_lanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane)
      lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

/// The largest of value(0) ... value(count - 1); NaNs are skipped, -infinity if nothing is
/// left.
template <class Value>
KOKKOS_FORCEINLINE_FUNCTION float lane_max(std::int64_t count, const Value& value) {
  float lanes[num_lanes];
  for (int lane = 0; lane < num_lanes; ++lane)
    lanes[lane] = -INFINITY;
  std::int64_t i = 0;
  for (; i + num_lanes <= count; i += num_lanes) {
    for (int lane = 0; lane < num_lanes; ++lane) {
      const float candidate = value(i + lane);
      lanes[lane] = candidate > lanes[lane] ? candidate : lanes[lane];
    }
  }
  float largest = -INFINITY;
  for (; i < count; ++i)
    largest = value(i) > largest ? value(i) : largest;
  for (int lane = 0; lane < num_lanes; ++lane) {
    largest = lanes[lane] > largest ? lanes[lane] : largest;
  }
  return largest;
}

}  // namespace finetune::kernels
