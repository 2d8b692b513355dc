#pragma once
// SPDX-License-Identifier: Apache-2.0
// Element types of tensors in memory and in files, and conversions between the floating ones.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace finetune::core {

/// f8_e4m3: four bits of exponent, three behind the point, no infinity. Source: Micikevicius et al.
/// 2022 (arXiv 2209.05433); PyTorch calls it float8_e4m3fn.
enum class DType { f32, bf16, f16, f64, f8_e4m3, i64, i32, i16, i8, u8, boolean };

std::int64_t size_bytes(DType dtype);

/// "F32", "BF16", ... as in safetensors files.
std::string_view name(DType dtype);

/// The inverse of `name`; nothing for names outside the list.
std::optional<DType> parse_dtype(std::string_view name);

/// bfloat16 keeps the upper half of a float.
inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds to nearest, ties to even; NaN stays NaN (as PyTorch does, c10/util/BFloat16.h).
inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0;
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

float f16_to_float(std::uint16_t bits);

/// Rounds to nearest, ties to even; beyond the largest half becomes infinity.
std::uint16_t float_to_f16(float value);

/// The largest finite number of f8_e4m3.
inline constexpr float largest_f8_e4m3 = 448;

float f8_e4m3_to_float(std::uint8_t bits);

/// Rounds to nearest, ties to even; what is larger becomes the largest finite number, infinity too.
std::uint8_t float_to_f8_e4m3(float value);

/// Converts `count` elements of a floating dtype (f32, bf16, f16, f64, f8_e4m3) to another.
/// Throws: ErrorKind::bug for other dtypes or spans of the wrong size.
void convert(DType from, std::span<const std::byte> source, DType to, std::span<std::byte> target);

}  // namespace finetune::core
