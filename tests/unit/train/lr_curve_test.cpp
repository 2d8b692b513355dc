// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/lr_curve.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace finetune::train::lr_curve_test {
namespace {

LrRange decades() {
  return {.from = 1e-6, .to = 1, .num_steps = 61};
}

/// Flat, a slope from the 20th step on, a floor from the 40th on, and a wall from the 50th on.
double valley(std::int64_t step) {
  if (step < 20) return 3;
  if (step < 40) return 3 - 0.1 * static_cast<double>(step - 20);
  return step < 50 ? 1 : 3.0 * static_cast<double>(step - 49);
}

TEST(LrRange, RisesByOneFactorFromTheFirstToTheLast) {
  const LrRange range = decades();
  EXPECT_EQ(range.lr(0), 1e-6);
  EXPECT_EQ(range.lr(60), 1);
  for (std::int64_t step = 0; step < 60; ++step)
    EXPECT_NEAR(range.lr(step + 1) / range.lr(step), std::pow(10, 0.1), 1e-12);
}

TEST(LrCurve, AdvisesATenthOfWhereTheLossIsLeast) {
  LrCurve curve(decades());
  std::int64_t step = 0;
  for (; step < 61 && !curve.has_diverged(); ++step)
    curve.add(step, valley(step), 1);
  const LrAdvice advice = curve.advice();
  ASSERT_TRUE(advice.lr);
  // Smoothed by ten steps, the floor is deepest at its end.
  EXPECT_NEAR(*advice.lowest, decades().lr(49), 1e-12);
  EXPECT_NEAR(*advice.lr, *advice.lowest / 10, 1e-12);
  EXPECT_GT(*advice.steepest, decades().lr(30));
  EXPECT_LT(*advice.steepest, decades().lr(42));
  EXPECT_EQ(advice.rule, "a tenth of the learning rate at which the smoothed loss is least");
  EXPECT_LT(step, 61);
  EXPECT_GT(curve.rows().back().smoothed, 4 * curve.rows()[49].smoothed);
}

TEST(LrCurve, SmoothsWithoutItsBiasToZero) {
  LrCurve curve(decades());
  for (std::int64_t step = 0; step < 8; ++step)
    EXPECT_NEAR(curve.add(step, 2.5, 1).smoothed, 2.5, 1e-12);
}

TEST(LrCurve, ALossThatNeverFallsGivesNoAdvice) {
  LrCurve curve(decades());
  for (std::int64_t step = 0; step < 30; ++step)
    curve.add(step, 1 + 0.01 * static_cast<double>(step), 1);
  EXPECT_FALSE(curve.advice().lr);
  EXPECT_NE(curve.advice().rule.find("--from"), std::string::npos);
}

TEST(LrCurve, ALossThatStillFallsAsksForMore) {
  LrCurve curve(decades());
  for (std::int64_t step = 0; step < 61; ++step)
    curve.add(step, 5 - 0.05 * static_cast<double>(step), 1);
  ASSERT_TRUE(curve.advice().lr);
  EXPECT_NEAR(*curve.advice().lr, 0.1, 1e-12);
  EXPECT_NE(curve.advice().rule.find("--to"), std::string::npos);
}

TEST(LrCurve, OfFewStepsIsTooShort) {
  LrCurve curve(decades());
  EXPECT_FALSE(curve.advice().lr);
  for (std::int64_t step = 0; step < 9; ++step)
    curve.add(step, 1.0 / static_cast<double>(step + 1), 1);
  EXPECT_FALSE(curve.advice().lr);
  EXPECT_NE(curve.advice().rule.find("too short"), std::string::npos);
}

TEST(LrCurve, AStepThatIsLeftOutMovesNoLearningRate) {
  LrCurve curve(decades());
  curve.add(0, 1, 1);
  EXPECT_EQ(curve.add(2, 1, 1).lr, decades().lr(2));
  EXPECT_EQ(curve.rows().back().step, 3);
}

TEST(LrCurve, IsATableAndACurveInATerminal) {
  LrCurve curve(decades());
  for (std::int64_t step = 0; step < 50; ++step)
    curve.add(step, valley(step), 1);
  const std::string table = curve.table(5);
  EXPECT_EQ(table.find(" step         lr       loss   smoothed  grad norm\n    1      1e-06"), 0)
      << table;
  EXPECT_NE(table.find("\n   50     0.0794"), std::string::npos) << table;
  EXPECT_NE(table.find("log10 of lr -1.1"), std::string::npos) << table;
}

}  // namespace
}  // namespace finetune::train::lr_curve_test
