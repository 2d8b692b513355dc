// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/lr_continuity.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "optim/schedule.hpp"
#include "support/files.hpp"
#include "support/messages.hpp"

namespace finetune::train::lr_continuity_test {
namespace {

optim::OptimizerSettings settings_of(optim::LrSchedule schedule, std::int64_t warmup_steps = 0) {
  optim::OptimizerSettings settings;
  settings.lr = 1e-3;
  settings.schedule = schedule;
  settings.warmup_steps = warmup_steps;
  settings.decay_ratio = 0.5;
  return settings;
}

/// What is said where a run of `before` steps in all went on, behind `done`, with `now` of them.
std::optional<std::string> said(const optim::OptimizerSettings& settings, std::int64_t before,
                                std::int64_t done, std::int64_t now) {
  const double lr = optim::Schedule(settings, before).lr(done - 1);
  return advice_on_lr_jump(settings, now, done, lr);
}

TEST(LrContinuity, IsMissedWhereAFinishedScheduleGoesOn) {
  using enum optim::LrSchedule;
  for (const auto schedule : {cosine, linear, polynomial, wsd})
    EXPECT_TRUE(said(settings_of(schedule), 10, 10, 20)) << static_cast<int>(schedule);
  const auto advice = said(settings_of(linear), 10, 10, 20);
  ASSERT_TRUE(advice);
  tests::expect_message(*advice, "step 11", {"0.0001", "0.0005", "20", "train.max_steps"});
}

TEST(LrContinuity, OfALowRateIsSpokenWhereOneWasThere) {
  using enum optim::LrSchedule;
  constexpr const char* low_rate = "constant";
  EXPECT_NE(said(settings_of(linear), 10, 10, 20).value().find(low_rate), std::string::npos);
  EXPECT_EQ(said(settings_of(cosine), 1000, 500, 600).value().find(low_rate), std::string::npos)
      << "a shorter run";
  EXPECT_EQ(said(settings_of(cosine), 1000, 1000, 2000).value().find(low_rate), std::string::npos)
      << "nothing was left of it";
}

TEST(LrContinuity, IsGivenWhereTheRateIsWhatItWouldHaveBeen) {
  using enum optim::LrSchedule;
  for (const auto schedule : {cosine, cosine_with_restarts, linear, polynomial, wsd})
    EXPECT_FALSE(said(settings_of(schedule), 10, 5, 10)) << static_cast<int>(schedule);
  EXPECT_FALSE(said(settings_of(cosine, 4), 10, 2, 10)) << "a warm-up rises by more than a tenth";
  EXPECT_FALSE(said(settings_of(constant), 10, 10, 20));
  EXPECT_FALSE(said(settings_of(inverse_sqrt, 2), 10, 10, 20));
  EXPECT_FALSE(said(settings_of(wsd), 100, 50, 200)) << "before its decay";
  EXPECT_FALSE(said(settings_of(cosine), 1000, 10, 1010)) << "hardly another length";
  EXPECT_FALSE(said(settings_of(linear), 10, 10, 10)) << "nothing follows";
  EXPECT_FALSE(advice_on_lr_jump(settings_of(linear), 10, 0, 0.0)) << "nothing was before";
}

TEST(LrContinuity, ReadsTheRateOfAStepFromItsNewestRow) {
  const tests::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "metrics.jsonl";
  EXPECT_FALSE(lr_of_step(file, 1)) << "no file";
  std::ofstream(file) << "{\"step\": 1, \"loss\": 2, \"lr\": 0.5}\n"
                         "{\"step\": 12, \"loss\": 2, \"lr\": 0.25}\n"
                         "{\"step\": 12, \"validation_loss\": 2}\n"
                         "{\"step\": 12, \"loss\": 2, \"lr\": 0.125}\n"
                         "{\"step\": 13, \"loss\": 2, \"lr";
  EXPECT_EQ(lr_of_step(file, 12), 0.125);
  EXPECT_EQ(lr_of_step(file, 1), 0.5);
  EXPECT_FALSE(lr_of_step(file, 2));
  EXPECT_FALSE(lr_of_step(file, 13)) << "cut off";
}

}  // namespace
}  // namespace finetune::train::lr_continuity_test
