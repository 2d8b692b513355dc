// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/detail/numbers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace finetune::checkpoint::numbers_test {
namespace {

using core::DType;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// The numbers of `values` stored as `dtype`.
ValueSummary numbers_of_values(DType dtype, const std::vector<double>& values,
                               Sign sign = Sign::any) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(core::size_bytes(dtype)));
  core::convert(DType::f64, std::as_bytes(std::span(values)), dtype, bytes);
  return numbers_of(dtype, bytes, sign);
}

class NumbersOf : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, NumbersOf,
                         testing::Values(DType::f32, DType::bf16, DType::f16, DType::f64),
                         [](const auto& info) { return std::string(core::name(info.param)); });

TEST_P(NumbersOf, SquaresOfAllElementsAreAddedUp) {
  // More than a group, and not a whole number of anything.
  for (const std::size_t count : {0u, 1u, 7u, 8u, 9u, 1024u, 1025u, 3001u}) {
    const ValueSummary numbers = numbers_of_values(GetParam(), std::vector<double>(count, -1.5));
    EXPECT_EQ(numbers.sum_of_squares, 2.25 * static_cast<double>(count));
    EXPECT_EQ(numbers.not_finite.count, 0);
    EXPECT_EQ(numbers.negative.count, 0);
  }
}

TEST_P(NumbersOf, TheFirstOfSeveralThatAreNotFiniteIsNamed) {
  for (const double bad : {nan, infinity, -infinity}) {
    for (const std::size_t first : {0u, 5u, 8u, 1023u, 1024u, 2998u}) {
      std::vector<double> values(3001, 0.5);
      values[first] = values[3000] = bad;
      const ValueSummary numbers = numbers_of_values(GetParam(), values, Sign::not_negative);
      EXPECT_EQ(numbers.not_finite.count, 2);
      EXPECT_EQ(numbers.not_finite.first, static_cast<std::int64_t>(first));
      EXPECT_EQ(std::isnan(numbers.not_finite.value), std::isnan(bad));
      EXPECT_EQ(numbers.sum_of_squares, 0.25 * 2999);
      EXPECT_EQ(numbers.negative.count, 0);
    }
  }
}

TEST_P(NumbersOf, NegativeElementsCountWhereNoneShouldBe) {
  std::vector<double> values(1100, 0.25);
  values[3] = -0.0;
  values[1030] = -2;
  values[1031] = -3;
  EXPECT_EQ(numbers_of_values(GetParam(), values).negative.count, 0);
  const ValueSummary numbers = numbers_of_values(GetParam(), values, Sign::not_negative);
  EXPECT_EQ(numbers.negative.count, 2);
  EXPECT_EQ(numbers.negative.first, 1030);
  EXPECT_EQ(numbers.negative.value, -2);
}

TEST(ValueSummary, LargestValuesAreFinite) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(numbers_of_values(DType::f32, std::vector<double>(8, largest)).not_finite.count, 0);
  EXPECT_EQ(numbers_of_values(DType::f64, std::vector<double>(8, 1e300)).not_finite.count, 0);
}

TEST(ValueSummary, WholeNumbersAreNotLookedAt) {
  const std::vector<std::byte> ones(64, std::byte{0xFF});
  for (const DType dtype : {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8}) {
    EXPECT_EQ(numbers_of(dtype, ones, Sign::not_negative).sum_of_squares, 0);
    EXPECT_EQ(numbers_of(dtype, ones, Sign::not_negative).negative.count, 0);
  }
}

}  // namespace
}  // namespace finetune::checkpoint::numbers_test
