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

TEST(DType, NamesReadBack) {
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64, DType::u8}) {
    EXPECT_EQ(parse_dtype(name(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("F8_E4M3"), std::nullopt);
}

}  // namespace
}  // namespace finetune::core::dtype_test
