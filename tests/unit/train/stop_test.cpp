// SPDX-License-Identifier: Apache-2.0
#include "train/stop.hpp"

#include <gtest/gtest.h>

#include <csignal>

#include "core/error.hpp"

namespace finetune::train {
namespace {

TEST(TimeLimit, LeavesRoomForTheLastSave) {
  TimeLimit limit(1000, 7);
  EXPECT_EQ(limit.margin_s(), 2 * 7 + 50);
  limit.add_step(10);
  limit.add_step(3);
  EXPECT_EQ(limit.margin_s(), 2 * 7 + 2 * 10 + 50);
  EXPECT_FALSE(limit.is_due(1000 - 84));
  EXPECT_TRUE(limit.is_due(1000 - 83.9));
  // What was measured counts, also where it is less than the guess; then the longest.
  limit.add_save(1);
  EXPECT_EQ(limit.margin_s(), 2 * 1 + 2 * 10 + 50);
  limit.add_save(20);
  limit.add_save(2);
  EXPECT_EQ(limit.margin_s(), 2 * 20 + 2 * 10 + 50);
}

TEST(TimeLimit, KeepsAtMostAMinuteBesides) {
  EXPECT_EQ(TimeLimit(86400, 0).margin_s(), 60);
}

TEST(TimeLimit, OfZeroIsNone) {
  TimeLimit limit(0, 100);
  limit.add_step(1e6);
  EXPECT_FALSE(limit.is_due(1e9));
}

TEST(ProcessAge, GrowsFromAboutNothing) {
  const double age = process_age_s();
  EXPECT_GE(age, 0);
  EXPECT_LT(age, 3600);  // a test that runs for an hour has other problems
  EXPECT_GE(process_age_s(), age);
}

TEST(Signals, AreRememberedTheFirstTimeAndEndTheProcessTheSecond) {
  const auto process = [](bool has_checkpoint, std::initializer_list<int> signals) {
    watch_signals();
    tell_signals(has_checkpoint);
    for (const int signal : signals)
      std::raise(signal);
    ::_exit(stop_is_asked() ? 0 : 1);
  };
  const auto ends_with = [](int code) { return testing::ExitedWithCode(code); };
  EXPECT_EXIT(process(true, {}), ends_with(1), "");
  EXPECT_EXIT(process(true, {SIGUSR1, SIGUSR1, SIGUSR1}), ends_with(0), "");
  EXPECT_EXIT(process(true, {SIGUSR1, SIGTERM}), ends_with(0), "");
  EXPECT_EXIT(process(true, {SIGINT}), ends_with(0), "");
  EXPECT_EXIT(process(true, {SIGTERM, SIGTERM}), ends_with(core::exit_resubmit_older), "");
  EXPECT_EXIT(process(true, {SIGINT, SIGINT}), ends_with(core::exit_resubmit_older), "");
  EXPECT_EXIT(process(false, {SIGINT, SIGINT}), ends_with(128 + SIGINT), "");
}

}  // namespace
}  // namespace finetune::train
