// SPDX-License-Identifier: Apache-2.0
#include "kernels/exact_squares.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/composed.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::exact_squares_test {
namespace {

using Values = std::vector<float>;
using Limbs = std::array<std::int64_t, 6>;

/// Normal numbers over many powers of two.
Values wide_values(std::size_t count) {
  const at::Tensor tensor = normal<float>({static_cast<std::int64_t>(count)}, 1);
  const std::span<float> numbers = elements<float>(tensor);
  Values values(numbers.begin(), numbers.end());
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::ldexp(values[i], static_cast<int>(i * 7 % 71) - 38);
  return values;
}

double plain(const Values& values) {
  long double sum = 0;
  for (const float value : values)
    sum += static_cast<long double>(value) * value;
  return static_cast<double>(sum);
}

TEST(ExactSquares, CountsUnits) {
  EXPECT_EQ(exact_squared_sum({}).limbs, Limbs{});
  EXPECT_EQ(exact_squared_sum(Values{0x1p-50f}).limbs, (Limbs{1}));
  EXPECT_EQ(exact_squared_sum(Values{-0x1p-30f}).limbs, (Limbs{0, 1}));
  EXPECT_EQ(exact_squared_sum(Values{1.0f}).limbs, (Limbs{0, 0, 1 << 20}));
  EXPECT_EQ(exact_squared_sum(Values{0x1p37f}).limbs, (Limbs{0, 0, 0, 0, 1 << 14}));
}

TEST(ExactSquares, AddsWithoutLosingABit) {
  // Of each pair the smaller one disappears in the fp64 sum of the two.
  const ExactSquares sum = exact_squared_sum(Values{0x1p37f, 0x1p-50f, 1.0f, 0x1p-40f});
  EXPECT_EQ(sum.limbs, (Limbs{(1 << 20) + 1, 0, 1 << 20, 0, 1 << 14}));
}

TEST(ExactSquares, FollowsLongDouble) {
  for (const std::size_t count : {1, 15, 4095, 4096, 4097, 20001}) {
    const Values values = wide_values(count);
    const double expected = plain(values);
    const double rounding = 1e-15 * expected + static_cast<double>(count) * 0x1p-101;
    EXPECT_NEAR(exact_squared_sum(values).value(), expected, rounding) << count;
  }
}

TEST(ExactSquares, FollowsLongDoubleOfSmallGradients) {
  for (const float size : {1.0f, 1e-3f, 1e-5f, 1e-8f}) {
    Values values = wide_values(20001);
    const at::Tensor tensor = normal<float>({20001}, 3) * size;
    std::copy_n(tensor.const_data_ptr<float>(), values.size(), values.begin());
    EXPECT_NEAR(exact_squared_sum(values).value() / plain(values), 1.0, 1e-9) << size;
  }
}

TEST(ExactSquares, HoldManyOfTheLargest) {
  const float largest = std::nextafter(0x1p38f, 0.0f);
  const ExactSquares sum = exact_squared_sum(Values(8192, largest));
  EXPECT_TRUE(sum.in_range);
  EXPECT_EQ(sum.value(), 8192 * static_cast<double>(largest) * largest);
}

TEST(ExactSquares, AnyPiecesInAnyOrderGiveTheSameIntegers) {
  Values values = wide_values(20001);
  const ExactSquares whole = exact_squared_sum(values);
  const std::span<const float> all(values);
  for (const std::size_t piece : {1000, 4096, 7777}) {
    ExactSquares sum;
    for (std::size_t begin = 0; begin < all.size(); begin += piece)
      sum.add(exact_squared_sum(all.subspan(begin, std::min(piece, all.size() - begin))));
    EXPECT_EQ(sum.limbs, whole.limbs);
  }
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(exact_squared_sum(values).limbs, whole.limbs);
  std::sort(values.begin(), values.end());  // blocks of small numbers skip bins that others fill
  EXPECT_EQ(exact_squared_sum(values).limbs, whole.limbs);
}

TEST(ExactSquares, RanksMayAddLimbsAndNormalizeOnce) {
  const Values values = wide_values(999);
  const ExactSquares part = exact_squared_sum(values);
  ExactSquares ranks, twice;
  for (std::int64_t& limb : ranks.limbs)
    limb = part.limbs[static_cast<std::size_t>(&limb - ranks.limbs.data())] * (1 << 20);
  ranks.normalize();
  twice = part;
  for (int doubling = 0; doubling < 20; ++doubling)
    twice.add(ExactSquares(twice));
  EXPECT_EQ(ranks.limbs, twice.limbs);
  EXPECT_EQ(ranks.value(), std::ldexp(part.value(), 20));
}

TEST(ExactSquares, ReportsWhatIsOutOfRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {0x1p38f, -0x1p38f, infinity, -infinity, std::nanf("")}) {
    for (const std::size_t place : {0, 4096, 20000}) {
      Values values(20001, 1.0f);
      EXPECT_TRUE(exact_squared_sum(values).in_range);
      values[place] = bad;
      ExactSquares sum = exact_squared_sum(values);
      EXPECT_FALSE(sum.in_range);
      sum.add(ExactSquares());
      EXPECT_FALSE(sum.in_range);
    }
  }
}

TEST(ExactSquares, OfTensorsAreTheSameIntegers) {
  Values values = wide_values(20001);
  values[7] = -0x1.fffffep37f;
  values[20000] = 0x1.8p-50f;  // half a unit and more
  const auto of_tensor = [](const Values& numbers, std::size_t piece) {
    at::Tensor bins = at::zeros({SquareBins::num_values}, at::kLong);
    for (std::size_t begin = 0; begin < numbers.size(); begin += piece) {
      const std::size_t end = std::min(numbers.size(), begin + piece);
      composed::add_exact_squares_(
          bins, at::tensor(Values(numbers.begin() + static_cast<std::ptrdiff_t>(begin),
                                  numbers.begin() + static_cast<std::ptrdiff_t>(end))));
    }
    return sum_of(SquareBins::from(std::span<const std::int64_t, SquareBins::num_values>(
        bins.const_data_ptr<std::int64_t>(), SquareBins::num_values)));
  };
  for (const std::size_t piece : {std::size_t{999}, values.size()})
    EXPECT_EQ(of_tensor(values, piece).limbs, exact_squared_sum(values).limbs);
  EXPECT_TRUE(of_tensor(values, 999).in_range);
  for (const float bad : {0x1p38f, -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    values[11] = bad;
    EXPECT_FALSE(of_tensor(values, 999).in_range) << bad;
  }
}

TEST(ExactSquares, GivesTheSameIntegersForAnyThreadCount) {
  const Values values = wide_values(100003);
  expect_same_bits_for_any_thread_count([&] {
    const Limbs limbs = exact_squared_sum(values).limbs;
    return at::tensor(std::vector<std::int64_t>(limbs.begin(), limbs.end()));
  });
}

}  // namespace
}  // namespace finetune::kernels::test::exact_squares_test
