// SPDX-License-Identifier: Apache-2.0
#include "core/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace finetune::core::random_test {
namespace {

TEST(Random, PhiloxGivesThePublishedVectors) {
  // Source: Random123's known-answer file for philox4x32-10.
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

std::vector<std::int64_t> permuted(std::uint64_t stream, std::int64_t count) {
  const Permutation permutation(RandomKey(1, RandomUse::shuffle, stream), count);
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < count; ++i)
    order.push_back(permutation(i));
  return order;
}

TEST(Random, PermutationHoldsEveryIndexOnce) {
  for (const std::int64_t count : {1, 2, 3, 4, 5, 7, 8, 9, 31, 100, 1000}) {
    auto order = permuted(7, count);
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(order[static_cast<std::size_t>(i)], i) << count;
  }
}

TEST(Random, PermutationDependsOnTheStream) {
  EXPECT_EQ(permuted(0, 100), permuted(0, 100));
  EXPECT_NE(permuted(0, 100), permuted(1, 100));
}

/// Every place is equally likely for every element: chi-square over (n - 1)^2 degrees of freedom
/// is about that number, with a deviation of the root of twice it.
TEST(Random, PermutationIsEven) {
  for (const std::int64_t count : {2, 3, 5, 8, 13}) {
    const auto n = static_cast<std::size_t>(count);
    std::vector<double> seen(n * n);
    constexpr std::uint64_t draws = 4000;
    for (std::uint64_t stream = 0; stream < draws; ++stream) {
      const auto order = permuted(stream, count);
      for (std::size_t i = 0; i < n; ++i)
        ++seen[i * n + static_cast<std::size_t>(order[i])];
    }
    const double expected = static_cast<double>(draws) / static_cast<double>(n);
    double chi_square = 0;
    for (const double times : seen)
      chi_square += (times - expected) * (times - expected) / expected;
    const auto freedom = static_cast<double>((n - 1) * (n - 1));
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom)) << count;
  }
}

TEST(Random, PermutationReachesFarElementsOfALargeRange) {
  constexpr std::int64_t count = (std::int64_t{1} << 40) + 7;
  const Permutation permutation(RandomKey(1, RandomUse::shuffle, 0), count);
  double sum = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t x = permutation(i);
    ASSERT_GE(x, 0);
    ASSERT_LT(x, count);
    sum += static_cast<double>(x) / static_cast<double>(count);
  }
  EXPECT_NEAR(sum / 1000, 0.5, 0.05);
}

TEST(Random, NormalHasMeanZeroAndVarianceOne) {
  const RandomKey key(3, RandomUse::test);
  double sum = 0;
  double squares = 0;
  constexpr int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = key.normal(static_cast<std::uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0.0, 0.015);
  EXPECT_NEAR(squares / n, 1.0, 0.02);
}

}  // namespace
}  // namespace finetune::core::random_test
