// SPDX-License-Identifier: Apache-2.0
// What starts.jsonl and the log say of starts and how they ended.
#include "report/starts.hpp"

#include <gtest/gtest.h>

#include "metrics/start_file.hpp"
#include "unit/report/folder.hpp"

namespace finetune::report {
namespace {

class Starts : public tests::RunFolderFixture {
 protected:
  void start_at(std::int64_t step) const {
    metrics::append_start(folder(), {.unix_time_s = 1.6e9, .step = step, .num_steps = 20});
  }
  /// Lines of the log, each with a time.
  void say(const std::vector<std::string>& texts) const {
    for (const std::string& text : texts)
      add("finetune.log", "2026-11-25 10:51:56 " + text + "\n");
  }
  std::string end() const { return last_start(folder()).end; }
};

TEST_F(Starts, OfAFolderWithoutAnyAreNone) {
  EXPECT_EQ(last_start(folder()).number, 0);
  EXPECT_EQ(start_line({}, 0, 20), "start 1 in this folder, at step 0 of 20");
}

TEST_F(Starts, EndAsTheySaid) {
  start_at(0);
  metrics::append_end(folder(), {1.7e9, 4, 75, "a signal asked to stop"});
  say({"start 1 in this folder, at step 0 of 20", "error: a later one"});
  const LastStart last = last_start(folder());
  EXPECT_EQ(start_line(last, 4, 20),
            "start 2 in this folder, at step 4 of 20; start 1: a signal asked to stop (after step "
            "4, exit code 75)");
}

TEST_F(Starts, ThatSaidNothingEndWithWhatTheirLogHasLast) {
  start_at(0);
  metrics::append_end(folder(), {1.7e9, 4, 75, "a signal"});
  start_at(4);
  EXPECT_EQ(end(), "said nothing: killed, or ended by another rank");
  say({"=== finetune a.toml on n1 (process 7)", "start 1 in this folder, at step 0 of 20",
       "step 3/20: loss 2.5", "=== finetune a.toml on n1 (process 8)",
       "start 2 in this folder, at step 4 of 20; start 1: a signal", "warning: slow"});
  EXPECT_EQ(end(),
            "said nothing: killed, or ended by another rank (its log ends at 2026-11-25 10:51:56)");
  say({"step 7/20: loss 2.5"});
  EXPECT_EQ(end(),
            "said nothing: killed, or ended by another rank (its log ends at 2026-11-25 10:51:56 "
            "behind step 7)");
}

TEST_F(Starts, ThatAnotherRankEndedEndWithItsError) {
  start_at(0);
  say({"=== finetune a.toml on n1 (process 7)", "start 1 in this folder, at step 0 of 20",
       "error: rank 3 on n2 is late\n  error: no line of its own"});
  EXPECT_EQ(end(),
            "killed, or ended by another rank; the last error: rank 3 on n2 is late (its log ends "
            "at 2026-11-25 10:51:56)");
}

TEST_F(Starts, AreNotBlamedForProcessesThatNeverBeganToTrain) {
  start_at(0);
  say({"=== finetune a.toml on n1 (process 7)", "start 1 in this folder, at step 0 of 20",
       "step 3/20: loss 2.5", "=== finetune b.toml on n1 (process 8)",
       "error: b.toml: is of another run", "=== finetune a.toml on n1 (process 9)"});
  EXPECT_EQ(end(),
            "said nothing: killed, or ended by another rank (its log ends at 2026-11-25 10:51:56 "
            "behind step 3)");
}

TEST_F(Starts, WhoseBeginningIsNoLongerInTheLogAreToldByTime) {
  start_at(0);
  say({"error: of this start"});
  EXPECT_NE(end().find("the last error: of this start"), std::string::npos) << end();
  add("finetune.log", "1999-01-01 00:00:00 error: of an earlier one\n");
  EXPECT_NE(end().find("the last error: of this start"), std::string::npos) << end();
}

TEST_F(Starts, ThatAKillCutInTheMidstOfTheirRowAreLeftOut) {
  start_at(0);
  add("starts.jsonl", "{\"end\": {\"step\": 3, \"rea");
  const auto starts = read_starts(folder());
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_FALSE(starts[0].end);
}

TEST(OpeningLine, SaysTheCommand) {
  const char* const words[] = {"/bin/finetune", "a.toml", "train.seed=2"};
  EXPECT_TRUE(opening_line(3, words).starts_with("=== finetune a.toml train.seed=2 on "));
}

}  // namespace
}  // namespace finetune::report
