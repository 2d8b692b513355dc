// SPDX-License-Identifier: Apache-2.0
#include "metrics/detail/meter.hpp"

#include <gtest/gtest.h>

namespace finetune::metrics::meter_test {
namespace {

TEST(Meter, KnowsNothingBeforeTheFirstStep) {
  EXPECT_EQ(Meter().median_step_s(), 0);
  EXPECT_EQ(Meter().seconds_left(10), 0);
}

TEST(Meter, IsNotMovedByOneSlowStep) {
  Meter meter;
  for (const double step_s : {60.0, 2.0, 1.0, 3.0, 2.0})
    meter.add(step_s);
  EXPECT_EQ(meter.median_step_s(), 2.0);
  EXPECT_EQ(meter.seconds_left(7), 14.0);
}

TEST(Meter, TakesTheMeanOfTheMiddleTwo) {
  Meter meter;
  for (const double step_s : {4.0, 1.0, 2.0, 90.0})
    meter.add(step_s);
  EXPECT_EQ(meter.median_step_s(), 3.0);
}

TEST(Meter, ForgetsStepsOfLongAgo) {
  Meter meter;
  for (int i = 0; i < 500; ++i)
    meter.add(9);
  // 101 steps are remembered: when 51 of them are new, so is the median.
  for (int i = 0; i < 50; ++i)
    meter.add(1);
  EXPECT_EQ(meter.median_step_s(), 9);
  meter.add(1);
  EXPECT_EQ(meter.median_step_s(), 1);
}

}  // namespace
}  // namespace finetune::metrics::meter_test
