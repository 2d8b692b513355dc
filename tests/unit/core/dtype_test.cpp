// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace finetune::core::dtype_test {
namespace {

TEST(DType, EveryHalfSurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_f16(value), bits);
  }
}

TEST(DType, EveryBf16SurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_bf16(value), bits);
  }
}

TEST(DType, RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), float_to_bf16(1.0f));            // tie, down to even
  EXPECT_EQ(float_to_bf16(1.0f + 0x3p-8f), float_to_bf16(1.0f + 0x1p-6f));  // tie, up to even
  EXPECT_EQ(float_to_f16(1.0f + 0x1p-11f), float_to_f16(1.0f));
  EXPECT_EQ(float_to_f16(65519.0f), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_f16(0x1p-25f), 0);  // half of the smallest, tie to zero
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

/// By its definition: sign, exponent with a bias of 7, three bits behind the point.
float f8_of(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 3 & 15u);
  const auto fraction = static_cast<float>(bits & 7u) / 8;
  const float magnitude =
      exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
  return (bits & 0x80u) != 0 ? -magnitude : magnitude;
}

TEST(DType, EveryEightBitFloatIsWhatItsBitsSayAndSurvives) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const float value = f8_e4m3_to_float(static_cast<std::uint8_t>(bits));
    if ((bits & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, f8_of(bits));
      EXPECT_EQ(std::signbit(value), bits > 127);
    }
    EXPECT_EQ(float_to_f8_e4m3(value), bits);
  }
}

TEST(DType, RoundsToTheNearestEightBitFloatAndSaturates) {
  for (unsigned bits = 0; bits < 0x7E; ++bits) {
    const float low = f8_of(bits), high = f8_of(bits + 1), middle = (low + high) / 2;
    const auto even = static_cast<std::uint8_t>(bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(float_to_f8_e4m3(middle), even);
    EXPECT_EQ(float_to_f8_e4m3(-middle), even | 0x80);
    EXPECT_EQ(float_to_f8_e4m3(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(float_to_f8_e4m3(std::nextafter(middle, 1000.0f)), bits + 1);
  }
  EXPECT_EQ(float_to_f8_e4m3(449), 0x7E);
  EXPECT_EQ(float_to_f8_e4m3(-1e30f), 0xFE);
  EXPECT_EQ(float_to_f8_e4m3(std::numeric_limits<float>::infinity()), 0x7E);
}

TEST(DType, NamesReadBack) {
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::f16, DType::f64, DType::f8_e4m3, DType::i64, DType::u8}) {
    EXPECT_EQ(parse_dtype(name(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("F8_E5M2"), std::nullopt);
}

}  // namespace
}  // namespace finetune::core::dtype_test
