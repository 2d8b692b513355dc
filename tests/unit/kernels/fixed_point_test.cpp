// SPDX-License-Identifier: Apache-2.0
#include "kernels/fixed_point.hpp"

#include <cmath>
#include <limits>

#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::fixed_point_test {
namespace {

constexpr FixedPoint format{.scale_bits = 40, .limit = 2048.0f};
using Integers = std::vector<std::int64_t>;

Integers fixed(const std::vector<float>& values, const FixedPoint& with = format) {
  Integers result(values.size(), -7);
  EXPECT_EQ(to_fixed<float>(values, with, result), -1);
  return result;
}

TEST(FixedPoint, CountsUnits) {
  EXPECT_EQ(fixed({0.0f, -0.0f, 1.0f, -1.5f, 0x1p-40f, 2047.0f}),
            (Integers{0, 0, 1ll << 40, -(3ll << 39), 1, 2047ll << 40}));
}

TEST(FixedPoint, RoundsTiesToEven) {
  EXPECT_EQ(fixed({0x1p-41f, 0x3p-41f, 0x5p-41f, -0x1p-41f, -0x3p-41f, 0x1.8p-41f}),
            (Integers{0, 2, 2, 0, -2, 1}));
}

TEST(FixedPoint, HoldsEveryBitUpToTheWidestLimit) {
  const float largest = std::nextafter(0x1p22f, 0.0f);
  const Integers integers = fixed({largest, -largest}, {.scale_bits = 40, .limit = 0x1p22f});
  EXPECT_EQ(integers, (Integers{((1ll << 24) - 1) << 38, -((1ll << 24) - 1) << 38}));
  Integers one(1);
  const std::vector<float> value{1.0f};
  EXPECT_ANY_THROW(to_fixed<float>(value, FixedPoint{.scale_bits = 40, .limit = 0x1p23f}, one));
}

TEST(FixedPoint, NamesTheFirstElementOutOfRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {2048.0f, -2048.0f, infinity, -infinity, std::nanf("")}) {
    for (const std::size_t place : {0, 4095, 4096, 20000}) {
      std::vector<float> values(20001, 1.0f);
      Integers target(values.size());
      values.back() = bad;
      values[place] = bad;
      EXPECT_EQ(to_fixed<float>(values, format, target), static_cast<std::int64_t>(place));
      EXPECT_EQ(add_fixed<float>(values, format, target), static_cast<std::int64_t>(place));
    }
  }
}

TEST(FixedPoint, AddsToTheSum) {
  Integers sum = fixed({1.0f, -2.0f, 3.0f});
  EXPECT_EQ(add_fixed<float>(std::vector<float>{0.5f, 2.0f, 0x1p-40f}, format, sum), -1);
  EXPECT_EQ(sum, (Integers{3ll << 39, 0, (3ll << 40) + 1}));
}

TEST(FixedPoint, ReadsNarrowElements) {
  const std::vector<bf16> brain{0x3FC0, 0xC000};          // 1.5, -2
  const std::vector<f16> half{f16{0x3E00}, f16{0x8001}};  // 1.5, -2^-24
  Integers sum(2);
  EXPECT_EQ(to_fixed<bf16>(brain, format, sum), -1);
  EXPECT_EQ(sum, (Integers{3ll << 39, -(2ll << 40)}));
  EXPECT_EQ(add_fixed<f16>(half, format, sum), -1);
  EXPECT_EQ(sum, (Integers{3ll << 40, -(2ll << 40) - (1 << 16)}));
}

TEST(FixedPoint, ComesBackRoundedOnce) {
  const at::Tensor values = normal<float>({1003}, 1);
  Integers integers(1003);
  std::vector<float> back(1003);
  ASSERT_EQ(to_fixed<float>(elements<float>(values), format, integers), -1);
  from_fixed(integers, 40, back);
  for (std::size_t i = 0; i < back.size(); ++i) {
    const float value = elements<float>(values)[i];
    EXPECT_NEAR(back[i], value, 0x1p-41 + std::fabs(value) * 0x1p-24);
    EXPECT_EQ(back[i], static_cast<float>(static_cast<double>(integers[i]) * 0x1p-40));
  }
}

TEST(FixedPoint, SumsDoNotDependOnTheOrder) {
  constexpr std::int64_t count = 1003, terms = 5;
  const at::Tensor values = normal<float>({terms, count}, 1);
  const auto sum_of = [&](std::vector<std::int64_t> order) {
    Integers sum(count);
    for (const std::int64_t term : order)
      EXPECT_EQ(add_fixed<float>(elements<float>(values[term]), format, sum), -1);
    return sum;
  };
  const Integers sum = sum_of({0, 1, 2, 3, 4});
  EXPECT_EQ(sum, sum_of({3, 1, 4, 0, 2}));
  Integers halves = sum_of({4, 2});
  add(sum_of({0, 3, 1}), halves);
  EXPECT_EQ(sum, halves);
}

TEST(FixedPoint, GivesTheSameBitsForAnyThreadCount) {
  const at::Tensor values = normal<float>({50001}, 1);
  expect_same_bits_for_any_thread_count([&] {
    at::Tensor sum = at::ones({50001}, at::kLong);
    EXPECT_EQ(add_fixed<float>(elements<float>(values), format, elements<std::int64_t>(sum)), -1);
    return sum;
  });
}

TEST(FixedPoint, RefusesSpansOfDifferentSizes) {
  Integers target(2);
  std::vector<float> values(3);
  EXPECT_ANY_THROW(to_fixed<float>(values, format, target));
  EXPECT_ANY_THROW(from_fixed(target, 40, values));
}

}  // namespace
}  // namespace finetune::kernels::test::fixed_point_test
