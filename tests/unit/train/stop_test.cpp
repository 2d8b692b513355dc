// SPDX-License-Identifier: Apache-2.0
#include "train/run/stop.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <utility>
#include <vector>

namespace finetune::train::stop_test {
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

TEST(TimeLimit, LeavesAStepThatTakesSoLongThatOnlyTheSaveStillFits) {
  TimeLimit limit(1000, 7);
  limit.add_step(10);
  EXPECT_TRUE(limit.is_due(1000 - 70));
  EXPECT_FALSE(limit.is_overdue(1000 - 70));
  EXPECT_FALSE(limit.is_overdue(1000 - 64));
  EXPECT_TRUE(limit.is_overdue(1000 - 63.9));
  EXPECT_FALSE(TimeLimit(0, 100).is_overdue(1e9));
}

using Answer = StopSignals::Answer;
constexpr std::int64_t ms = 1'000'000;
constexpr std::int64_t start_ns = 5'000 * ms;

/// What each of `signals`, at so many milliseconds, is answered.
std::vector<Answer> answers(bool terms_repeat,
                            const std::vector<std::pair<int, std::int64_t>>& signals) {
  StopSignals rule(terms_repeat);
  std::vector<Answer> all;
  for (const auto& [signal, at_ms] : signals) {
    all.push_back(rule.add(signal, start_ns + at_ms * ms));
    EXPECT_TRUE(rule.is_asked());
  }
  return all;
}

const std::vector<Answer> both_remembered(2, Answer::remember);
const std::vector<Answer> the_second_ends = {Answer::remember, Answer::end_at_once};

TEST(StopSignals, NothingIsAskedBeforeTheFirst) {
  EXPECT_FALSE(StopSignals(false).is_asked());
}

TEST(StopSignals, TheSecondOfAPreemptionIsNotSomebodyInAHurry) {
  EXPECT_EQ(answers(false, {{SIGTERM, 0}, {SIGTERM, 0}}), both_remembered);
  EXPECT_EQ(answers(false, {{SIGTERM, 0}, {SIGTERM, 300}}), both_remembered);
  EXPECT_EQ(answers(false, {{SIGTERM, 0}, {SIGINT, 2'999}}), both_remembered);
}

TEST(StopSignals, ASecondOneThreeSecondsLaterEndsTheProcess) {
  EXPECT_EQ(answers(false, {{SIGTERM, 0}, {SIGTERM, 3'000}}), the_second_ends);
  EXPECT_EQ(answers(false, {{SIGINT, 0}, {SIGTERM, 9'000}}), the_second_ends);
  EXPECT_EQ(answers(false, {{SIGTERM, 0}, {SIGTERM, 200}, {SIGTERM, 3'100}}).back(),
            Answer::end_at_once)
      << "it is the first that counts, not the last";
}

TEST(StopSignals, TheWarningOfASchedulerIsNeverTheFirstOfTwo) {
  EXPECT_EQ(answers(false, {{SIGUSR1, 0}, {SIGUSR1, 60'000}}), both_remembered);
  EXPECT_EQ(answers(false, {{SIGUSR1, 0}, {SIGTERM, 60'000}}), both_remembered);
  EXPECT_EQ(answers(false, {{SIGTERM, 0}, {SIGUSR1, 60'000}}), both_remembered);
}

TEST(StopSignals, UnderSlurmTheTermAtTheEndOfTheGraceTimeLeavesTheSaveAlone) {
  EXPECT_EQ(answers(true, {{SIGTERM, 0}, {SIGTERM, 30'000}}), both_remembered);
  EXPECT_EQ(answers(true, {{SIGTERM, 0}, {SIGINT, 30'000}}), the_second_ends);
}

TEST(Signals, AreRememberedAndTwoOfAPreemptionDoNotEndTheProcess) {
  const auto process = [](std::initializer_list<int> signals) {
    watch_signals();
    tell_signals(true);
    for (const int signal : signals)
      std::raise(signal);
    ::_exit(stop_is_asked() ? 0 : 1);
  };
  const auto ends_with = [](int code) { return testing::ExitedWithCode(code); };
  EXPECT_EXIT(process({}), ends_with(1), "");
  EXPECT_EXIT(process({SIGUSR1, SIGUSR1, SIGUSR1}), ends_with(0), "");
  EXPECT_EXIT(process({SIGUSR1, SIGTERM}), ends_with(0), "");
  EXPECT_EXIT(process({SIGINT}), ends_with(0), "");
  EXPECT_EXIT(process({SIGTERM, SIGTERM}), ends_with(0), "");
  EXPECT_EXIT(process({SIGTERM, SIGINT, SIGTERM}), ends_with(0), "");
}

TEST(Signals, OfAnEarlierRunAreForgotten) {
  const auto process = [] {
    watch_signals();
    tell_signals(true);
    std::raise(SIGTERM);
    const double age_s = process_age_s();
    forget_signals();
    if (stop_is_asked()) ::_exit(1);
    // It has not lived as long again, which is what it would take.
    if (process_age_s() > age_s) ::_exit(2);
    std::raise(SIGTERM);
    ::_exit(stop_is_asked() ? 0 : 3);
  };
  EXPECT_EXIT(process(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace finetune::train::stop_test
