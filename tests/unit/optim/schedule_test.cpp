// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "support/folders.hpp"

namespace finetune::optim::schedule_test {
namespace {

/// Multipliers of 20 steps with 4 of warm-up. "train" is the reference trajectory's own; "hf_*" are
/// transformers' lambdas.
std::vector<double> golden(const std::string& name) {
  const core::Json json =
      core::read_json(tests::source_folder() / "tests/golden/train/schedules.json", 1 << 20);
  return json["multipliers"][name].get<std::vector<double>>();
}

OptimizerSettings settings_of(LrSchedule schedule, double min_lr_ratio = 0) {
  OptimizerSettings settings;
  settings.lr = 1;
  settings.schedule = schedule;
  settings.warmup_steps = 4;
  settings.min_lr_ratio = min_lr_ratio;
  return settings;
}

OptimizerSettings with_cycles(std::int64_t num_cycles, double min_lr_ratio = 0) {
  OptimizerSettings settings = settings_of(LrSchedule::cosine_with_restarts, min_lr_ratio);
  settings.num_cycles = num_cycles;
  return settings;
}

OptimizerSettings with_power(double power, double min_lr_ratio) {
  OptimizerSettings settings = settings_of(LrSchedule::polynomial, min_lr_ratio);
  settings.power = power;
  return settings;
}

OptimizerSettings with_timescale(std::int64_t steps) {
  OptimizerSettings settings = settings_of(LrSchedule::inverse_sqrt);
  settings.timescale_steps = steps;
  return settings;
}

TEST(Schedule, IsThatOfTheReferenceTrajectory) {
  const Schedule schedule(settings_of(LrSchedule::cosine, 0.1), 20);
  const auto expected = golden("train");
  for (std::int64_t step = 0; step < 20; ++step)
    EXPECT_NEAR(schedule.lr(step), expected[static_cast<std::size_t>(step)], 1e-15);
}

/// From the peak on the numbers are those of transformers. Before it, transformers' first step has
/// a rate of zero and step s has s / w, so that one step of the run is wasted; here it is
/// (s + 1) / w, and the peak comes one step earlier.
TEST(Schedule, DiffersFromTransformersInWarmUpAlone) {
  const std::vector<std::pair<std::string, OptimizerSettings>> pairs = {
      {"hf_linear", settings_of(LrSchedule::linear)},
      {"hf_cosine", settings_of(LrSchedule::cosine)},
      {"hf_cosine_with_min_lr", settings_of(LrSchedule::cosine, 0.1)},
      {"hf_constant_with_warmup", settings_of(LrSchedule::constant)},
      {"hf_cosine_with_restarts_3", with_cycles(3)},
      {"hf_polynomial_2", with_power(2, 0.1)},
      {"hf_inverse_sqrt", settings_of(LrSchedule::inverse_sqrt)},
      {"hf_inverse_sqrt_7", with_timescale(7)}};
  for (const auto& [name, settings] : pairs) {
    const Schedule schedule(settings, 20);
    const auto expected = golden(name);
    for (std::int64_t step = 0; step < 4; ++step)
      EXPECT_EQ(schedule.lr(step), expected[static_cast<std::size_t>(step) + 1]) << name;
    for (std::int64_t step = 4; step < 20; ++step)
      EXPECT_NEAR(schedule.lr(step), expected[static_cast<std::size_t>(step)], 1e-15) << name;
  }
}

TEST(Schedule, WarmupRatioIsRoundedUp) {
  OptimizerSettings settings = settings_of(LrSchedule::linear);
  settings.warmup_steps = 0;
  settings.warmup_ratio = 0.11;
  EXPECT_EQ(Schedule(settings, 20).warmup_steps(), 3);
  settings.warmup_ratio = 0;
  EXPECT_EQ(Schedule(settings, 20).warmup_steps(), 0);
  EXPECT_EQ(Schedule(settings, 20).lr(0), 1);
}

TEST(Schedule, WarmupStepsComeBeforeTheRatio) {
  OptimizerSettings settings = settings_of(LrSchedule::linear);
  settings.warmup_ratio = 0.5;
  EXPECT_EQ(Schedule(settings, 20).warmup_steps(), 4);
}

TEST(Schedule, ScalesWithThePeakAndEndsAtItsLeast) {
  for (const LrSchedule shape : {LrSchedule::linear, LrSchedule::cosine}) {
    OptimizerSettings settings = settings_of(shape, 0.25);
    settings.lr = 3e-4;
    const Schedule schedule(settings, 20);
    EXPECT_NEAR(schedule.lr(12), 3e-4 * (0.25 + 0.75 * 0.5), 1e-18);
    EXPECT_NEAR(schedule.lr(20), 3e-4 * 0.25, 1e-18);
    EXPECT_EQ(schedule.lr(1000), schedule.lr(20)) << "never below its end";
  }
}

/// Steps 4 to 13 at the peak, then the last 30 % of all steps, as transformers'
/// get_wsd_schedule(4, 6, 20, decay_type="linear") has them.
TEST(Schedule, WsdStaysAndThenFallsLinearly) {
  OptimizerSettings settings = settings_of(LrSchedule::wsd, 0.1);
  settings.decay_ratio = 0.3;
  const Schedule schedule(settings, 20);
  EXPECT_EQ(schedule.lr(3), 1);
  for (std::int64_t step = 4; step <= 14; ++step)
    EXPECT_EQ(schedule.lr(step), 1) << step;
  for (std::int64_t step = 14; step <= 20; ++step)
    EXPECT_NEAR(schedule.lr(step), 0.1 + 0.9 * static_cast<double>(20 - step) / 6, 1e-15) << step;
  settings.decay_ratio = 1;
  EXPECT_EQ(Schedule(settings, 20).lr(4), 1) << "warm-up comes first";
  EXPECT_NEAR(Schedule(settings, 20).lr(12), 0.55, 1e-15) << "as linear";
}

TEST(Schedule, RestartsFromThePeakAndEndsAtItsLeast) {
  const Schedule schedule(with_cycles(2, 0.2), 20);
  EXPECT_EQ(schedule.lr(4), 1);
  EXPECT_NEAR(schedule.lr(8), 0.6, 1e-15);
  EXPECT_LT(schedule.lr(11), 0.3);
  EXPECT_EQ(schedule.lr(12), 1);
  EXPECT_NEAR(schedule.lr(20), 0.2, 1e-15);
  const Schedule once(with_cycles(1), 20), cosine(settings_of(LrSchedule::cosine), 20);
  for (std::int64_t step = 0; step <= 20; ++step)
    EXPECT_EQ(once.lr(step), cosine.lr(step)) << step;
}

TEST(Schedule, InverseSqrtStopsAtItsLeastAndHasATimescaleWithoutWarmUp) {
  OptimizerSettings settings = settings_of(LrSchedule::inverse_sqrt, 0.7);
  EXPECT_EQ(Schedule(settings, 20).lr(19), 0.7);
  EXPECT_NEAR(Schedule(settings, 20).lr(5), std::sqrt(4.0 / 5), 1e-15);
  settings.warmup_steps = 0;
  EXPECT_EQ(Schedule(settings, 20).lr(0), 1);
  EXPECT_NEAR(Schedule(settings, 20'000).lr(2'500), std::sqrt(1 / 1.25), 1e-15);
}

TEST(Schedule, OfARunThatIsAllWarmUpHasNoDecay) {
  const Schedule schedule(settings_of(LrSchedule::cosine), 2);
  EXPECT_EQ(schedule.lr(0), 0.25);
  EXPECT_EQ(schedule.lr(1), 0.5);
  EXPECT_TRUE(std::isfinite(Schedule(settings_of(LrSchedule::linear), 4).lr(4)));
}

}  // namespace
}  // namespace finetune::optim::schedule_test
