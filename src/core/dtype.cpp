// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "core/error.hpp"

namespace finetune::core {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array<DTypeRow, 11> rows = {{{DType::f32, "F32", 4},
                                            {DType::bf16, "BF16", 2},
                                            {DType::f16, "F16", 2},
                                            {DType::f64, "F64", 8},
                                            {DType::f8_e4m3, "F8_E4M3", 1},
                                            {DType::i64, "I64", 8},
                                            {DType::i32, "I32", 4},
                                            {DType::i16, "I16", 2},
                                            {DType::i8, "I8", 1},
                                            {DType::u8, "U8", 1},
                                            {DType::boolean, "BOOL", 1}}};

const DTypeRow& row(DType dtype) {
  for (const DTypeRow& r : rows) {
    if (r.dtype == dtype) return r;
  }
  fail(ErrorKind::bug, {"dtype", "unknown element type", "", ""});
}

bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 ||
         dtype == DType::f64 || dtype == DType::f8_e4m3;
}

/// One element at `p`, widened. Doubles keep their value: they are widened to double.
double load(DType dtype, const std::byte* p) {
  const auto get = [p]<typename T>(T) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return get(float{});
    case DType::bf16:
      return bf16_to_float(get(std::uint16_t{}));
    case DType::f16:
      return f16_to_float(get(std::uint16_t{}));
    case DType::f8_e4m3:
      return f8_e4m3_to_float(get(std::uint8_t{}));
    default:
      return get(double{});
  }
}

void store(DType dtype, double value, std::byte* p) {
  const auto put = [p](auto v) { std::memcpy(p, &v, sizeof(v)); };
  switch (dtype) {
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::bf16:
      return put(float_to_bf16(static_cast<float>(value)));
    case DType::f16:
      return put(float_to_f16(static_cast<float>(value)));
    case DType::f8_e4m3:
      return put(float_to_f8_e4m3(static_cast<float>(value)));
    default:
      return put(value);
  }
}

}  // namespace

std::int64_t size_bytes(DType dtype) {
  return row(dtype).bytes;
}

std::string_view name(DType dtype) {
  return row(dtype).name;
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeRow& r : rows) {
    if (r.name == name) return r.dtype;
  }
  return std::nullopt;
}

float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Subnormal halves are normal floats: mantissa * 2^-24.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

std::uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // >= 65520
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the spacing of halves is 2^-24; adding 0.5 lets the float unit do the rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) & 0x7FFu));
  }
  const std::uint32_t rounded = magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

float f8_e4m3_to_float(std::uint8_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
  const std::uint32_t exponent = (bits >> 3) & 0xFu, mantissa = bits & 7u;
  if ((bits & 0x7Fu) == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (mantissa << 20));
  // Subnormal numbers are multiples of 2^-9.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  return sign != 0 ? -magnitude : magnitude;
}

std::uint8_t float_to_f8_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint8_t>(sign | 0x7Fu);
  if (magnitude >= 0x43E00000u) return static_cast<std::uint8_t>(sign | 0x7Eu);  // >= 448
  if (magnitude < 0x3C800000u) {
    // Below 2^-6 the spacing is 2^-9, that of floats at 2^14: the float unit does the rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(shifted) & 0xFu));
  }
  const std::uint32_t rounded = magnitude - 0x3C000000u + 0x7FFFFu + ((magnitude >> 20) & 1u);
  return static_cast<std::uint8_t>(sign | (rounded >> 20));
}

void convert(DType from, std::span<const std::byte> source, DType to, std::span<std::byte> target) {
  check(is_floating(from) && is_floating(to), "conversion between floating types only");
  const auto from_bytes = static_cast<std::size_t>(size_bytes(from));
  const auto to_bytes = static_cast<std::size_t>(size_bytes(to));
  const std::size_t count = source.size() / from_bytes;
  check(source.size() % from_bytes == 0 && target.size() == count * to_bytes,
        "conversion spans hold the same number of elements");
  if (from == to) {
    if (count != 0) std::memcpy(target.data(), source.data(), source.size());
    return;
  }
  if (from == DType::bf16 && to == DType::f32) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, source.data() + 2 * i, 2);
      const float value = bf16_to_float(bits);
      std::memcpy(target.data() + 4 * i, &value, 4);
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    store(to, load(from, source.data() + i * from_bytes), target.data() + i * to_bytes);
  }
}

}  // namespace finetune::core
