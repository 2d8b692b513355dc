// SPDX-License-Identifier: Apache-2.0
#include "core/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace finetune::core {
namespace {

TEST(Random, PhiloxGivesThePublishedVectors) {
  // Source: Random123's known-answer file for philox4x32-10.
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, PermutationHoldsEveryIndexOnceAndDependsOnTheStream) {
  auto first = permutation(RandomKey(1, RandomUse::shuffle, 0), 100);
  const auto second = permutation(RandomKey(1, RandomUse::shuffle, 1), 100);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, permutation(RandomKey(1, RandomUse::shuffle, 0), 100));
  EXPECT_EQ(std::set<std::int64_t>(first.begin(), first.end()).size(), 100u);
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
}  // namespace finetune::core
