// SPDX-License-Identifier: Apache-2.0
#include "optim/clip.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "support/ranks.hpp"
#include "support/shards.hpp"

namespace finetune::optim::clip_test {
namespace {

TEST(ClipFactor, BringsALargeNormDown) {
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));
  EXPECT_DOUBLE_EQ(clip_factor(4, 2), 2 / (4 + 1e-6));
}

TEST(ClipFactor, LeavesASmallNormAlone) {
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(0, 1), 1);
}

TEST(ClipFactor, OfZeroMeansNoClipping) {
  EXPECT_EQ(clip_factor(1e30, 0), 1);
}

double norm_of_elements(tests::OddShards& odd) {
  odd.for_each_gradient(
      [](int row, std::int64_t i, float& value) { value = tests::element_of(row, i); });
  return gradient_norm(odd.shards);
}

TEST(GradientNorm, IsOfAllElementsOfAllRanks) {
  tests::OddShards odd(tests::world(), at::kFloat);
  double squares = 0;
  for (int row = 0; row < static_cast<int>(odd.table.rows.size()); ++row) {
    for (std::int64_t i = 0; i < odd.table.rows[static_cast<std::size_t>(row)].count(); ++i)
      squares += std::pow(static_cast<double>(tests::element_of(row, i)), 2);
  }
  EXPECT_NEAR(norm_of_elements(odd), std::sqrt(squares), 1e-12 * std::sqrt(squares));
}

TEST(GradientNorm, DoesNotDependOnTheRanks) {
  tests::OddShards odd(tests::world(), at::kFloat);
  tests::OddShards alone(comm::Communicator(), at::kFloat);
  const double expected = norm_of_elements(alone);
  EXPECT_NEAR(norm_of_elements(odd), expected, 1e-14 * expected);
}

TEST(GradientNorm, OfAnInfiniteElementIsNotFiniteOnAnyRank) {
  tests::OddShards odd(tests::world(), at::kFloat);
  odd.for_each_gradient([](int row, std::int64_t, float& value) {
    value = row == 5 ? std::numeric_limits<float>::infinity() : 1.0f;
  });
  EXPECT_FALSE(std::isfinite(gradient_norm(odd.shards)));
}

}  // namespace
}  // namespace finetune::optim::clip_test
