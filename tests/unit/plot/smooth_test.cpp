// SPDX-License-Identifier: Apache-2.0
// Smoothing and thinning, worked out by hand.
#include "plot/smooth.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace finetune::plot {
namespace {

TEST(Smoothed, IsTheExponentialMeanWithoutItsBias) {
  // m: 2, then 1 + 0 = 1 and 0.5 + 4 = 4.5; divided by 1/2, 3/4 and 7/8.
  const Points out = smoothed({{1, 4}, {2, 0}, {3, 8}}, 0.5);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_DOUBLE_EQ(out[0].second, 4);
  EXPECT_DOUBLE_EQ(out[1].second, 4.0 / 3);
  EXPECT_DOUBLE_EQ(out[2].second, 4.5 / 0.875);
  EXPECT_EQ(out[2].first, 3);
}

TEST(Smoothed, OfAConstantIsThatConstantFromTheFirstPointOn) {
  for (const auto& [x, y] : smoothed({{1, 3}, {2, 3}, {3, 3}}, 0.9))
    EXPECT_DOUBLE_EQ(y, 3);
}

TEST(Smoothed, LeavesOutWhatIsNoNumber) {
  const Points out = smoothed({{1, 4}, {2, NAN}, {3, 0}}, 0.5);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_DOUBLE_EQ(out[1].second, 4.0 / 3);
}

TEST(UsualWeight, AveragesOverAFiftieth) {
  EXPECT_DOUBLE_EQ(usual_weight(500), 0.9);
  EXPECT_EQ(usual_weight(10), 0.6);
  EXPECT_EQ(usual_weight(1'000'000), 0.99);
}

TEST(Thinned, KeepsSpikesAndEnds) {
  Points points;
  for (int i = 0; i < 10'000; ++i)
    points.emplace_back(i, i == 5'431 ? 100 : i == 7'777 ? -100 : i % 7);
  const Points out = thinned(points, 400);
  EXPECT_LE(out.size(), 400u);
  EXPECT_EQ(out.front(), points.front());
  EXPECT_EQ(out.back(), points.back());
  EXPECT_TRUE(std::ranges::is_sorted(out));
  EXPECT_EQ(std::ranges::count(out, std::pair(5'431.0, 100.0)), 1);
  EXPECT_EQ(std::ranges::count(out, std::pair(7'777.0, -100.0)), 1);
}

TEST(Thinned, LeavesFewPointsAsTheyAre) {
  EXPECT_EQ(thinned({{1, 2}, {2, NAN}, {3, 4}}, 10), (Points{{1, 2}, {3, 4}}));
}

}  // namespace
}  // namespace finetune::plot
