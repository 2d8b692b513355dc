// SPDX-License-Identifier: Apache-2.0
// Ticks worked out by hand.
#include "plot/scale.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace finetune::plot {
namespace {

std::vector<std::string> labels(const Scale& scale, int count) {
  std::vector<std::string> out;
  for (const Tick& tick : ticks(scale, count))
    out.push_back(tick.label);
  return out;
}

using Labels = std::vector<std::string>;

TEST(Ticks, AreRoundNumbersWithTheSameDigits) {
  EXPECT_EQ(labels({0, 10, Spacing::linear}, 5), (Labels{"0", "2", "4", "6", "8", "10"}));
  EXPECT_EQ(labels({0.31, 1.07, Spacing::linear}, 5), (Labels{"0.4", "0.6", "0.8", "1.0"}));
  EXPECT_EQ(labels({-1, 1, Spacing::linear}, 4), (Labels{"-1.0", "-0.5", "0.0", "0.5", "1.0"}));
  EXPECT_EQ(labels({1.001, 1.004, Spacing::linear}, 3),
            (Labels{"1.001", "1.002", "1.003", "1.004"}));
}

TEST(Ticks, OfLargeAndSmallNumbersAreShort) {
  EXPECT_EQ(labels({0, 50'000, Spacing::linear}, 5),
            (Labels{"0", "10k", "20k", "30k", "40k", "50k"}));
  EXPECT_EQ(labels({0, 2e-5, Spacing::linear}, 4),
            (Labels{"0", "5e-06", "1e-05", "1.5e-05", "2e-05"}));
}

TEST(Ticks, OfPowersAreDecades) {
  EXPECT_EQ(labels({1, 1000, Spacing::logarithmic}, 5), (Labels{"1", "10", "100", "1000"}));
  EXPECT_EQ(labels({0.8, 12, Spacing::logarithmic}, 8), (Labels{"1", "2", "5", "10"}));
  EXPECT_EQ(labels({1, 1e8, Spacing::logarithmic}, 5), (Labels{"1", "100", "10k", "1M", "100M"}));
}

TEST(Ticks, OfPowersWithinADecadeAreLinear) {
  EXPECT_EQ(labels({2.1, 2.9, Spacing::logarithmic}, 4), (Labels{"2.2", "2.4", "2.6", "2.8"}));
}

TEST(Scale, PlacesItsEndsAtZeroAndOne) {
  const Scale linear{2, 6, Spacing::linear}, powers{1, 100, Spacing::logarithmic};
  EXPECT_EQ(linear.place(2), 0);
  EXPECT_EQ(linear.place(5), 0.75);
  EXPECT_DOUBLE_EQ(powers.place(10), 0.5);
}

TEST(Scale, HoldsWhatIsFiniteAndAMargin) {
  const double values[] = {1, NAN, 3, HUGE_VAL};
  const Scale scale = scale_of(values, Spacing::linear, 0.25);
  EXPECT_EQ(scale.low, 0.5);
  EXPECT_EQ(scale.high, 3.5);
}

TEST(Scale, DoesNotBeginBelowZeroForWhatIsNeverNegative) {
  const double values[] = {0.1, 2};
  EXPECT_EQ(scale_of(values, Spacing::linear, 0.5).low, 0);
}

TEST(Scale, OfOneValueOrNoneHasARange) {
  const double one[] = {4, 4}, zero[] = {0}, negative[] = {-1, 0};
  EXPECT_EQ(scale_of(one, Spacing::linear, 0.1).low, 2);
  EXPECT_EQ(scale_of(one, Spacing::linear, 0.1).high, 6);
  EXPECT_EQ(scale_of(zero, Spacing::linear, 0.1).high, 1);
  EXPECT_EQ(scale_of({}, Spacing::linear, 0.1).high, 1);
  EXPECT_GT(scale_of(negative, Spacing::logarithmic, 0.1).low, 0);
}

}  // namespace
}  // namespace finetune::plot
