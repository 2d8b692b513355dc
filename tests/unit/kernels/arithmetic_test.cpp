// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/arithmetic.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/dtype.hpp"

namespace finetune::kernels::test::arithmetic_test {
namespace {

TEST(ExpBounded, IsWithinTwoUlpOverItsRange) {
  double worst = 0.0;
  for (float x = -87.0f; x <= 88.0f; x += 0.00137f) {
    const double exact = std::exp(static_cast<double>(x));
    const auto nearest = static_cast<float>(exact);
    const double ulp = std::nextafter(nearest, INFINITY) - nearest;
    worst = std::max(worst, std::abs(exp_bounded(x) - exact) / ulp);
  }
  EXPECT_LE(worst, 2.0);
}

TEST(ExpBounded, IsExactWhereItMatters) {
  EXPECT_EQ(exp_bounded(0.0f), 1.0f);
  EXPECT_EQ(exp_bounded(-INFINITY), 0.0f);
  EXPECT_EQ(exp_bounded(-1e30f), 0.0f);
  EXPECT_TRUE(std::isnan(exp_bounded(std::nanf(""))));
}

TEST(RoundToBf16, AgreesWithCore) {
  for (std::uint32_t high = 0; high < 0x10000u; high += 7) {
    for (const std::uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const float value = float_of(high << 16 | low);
      ASSERT_EQ(round_to<bf16>(value), core::float_to_bf16(value)) << high << " " << low;
    }
  }
}

TEST(LaneSum, HasEveryTermOnce) {
  for (const std::int64_t count : {0, 1, 63, 64, 65, 127, 128, 200}) {
    const auto sum = lane_sum<double>(count, [](std::int64_t i) { return double(i + 1); });
    EXPECT_EQ(sum, double(count * (count + 1) / 2));
  }
}

TEST(LaneMax, FindsTheLargestAtAnyPlace) {
  for (const std::int64_t place : {0, 63, 64, 127, 128, 199}) {
    EXPECT_EQ(lane_max(200, [=](std::int64_t i) { return i == place ? -1.0f : -2.0f; }), -1.0f);
  }
  EXPECT_EQ(lane_max(0, [](std::int64_t) { return 0.0f; }), -INFINITY);
}

}  // namespace
}  // namespace finetune::kernels::test::arithmetic_test
