// SPDX-License-Identifier: Apache-2.0
// How a run is, of planted folders.
#include <gtest/gtest.h>

#include <limits>

#include "core/file_lock.hpp"
#include "metrics/records.hpp"
#include "metrics/start_file.hpp"
#include "report/run_state.hpp"
#include "report/screen.hpp"
#include "unit/report/folder.hpp"

namespace finetune::report {
namespace {

class State : public tests::RunFolderFixture {
 protected:
  void start_at(std::int64_t step) {
    metrics::append_start(folder(), {.unix_time_s = 1000,
                                     .step = step,
                                     .num_steps = 20,
                                     .planned_bytes = {{"weights", 1 << 20}}});
  }
  void end_at(std::int64_t step, int code, const std::string& reason) {
    metrics::append_end(folder(), {1100, step, code, reason});
  }
  /// Steps of half a second each.
  void steps(std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step <= last; ++step)
      add("metrics.jsonl", metrics::to_json(metrics::StepRecord{
                               .step = step, .loss = 2, .tokens_per_s = 1234, .step_s = 0.5}) +
                               "\n");
  }
  /// `silent_s` after the last sign.
  Verdict after(double silent_s, std::optional<bool> held) {
    run_ = read_run(folder());
    return judge(run_, held, run_.last_sign_unix_s + silent_s);
  }
  RunHistory run_;
};

TEST_F(State, IsFinishedOnceTheLastStartSaysSo) {
  start_at(0);
  steps(1, 20);
  end_at(20, 0, "all 20 steps are done");
  EXPECT_EQ(after(1, false).state, RunState::finished);
  EXPECT_EQ(after(1e6, false).state, RunState::finished);
  EXPECT_EQ(after(1, true).state, RunState::finished) << "its job is about to end";
}

TEST_F(State, IsRunningWhileSignsCome) {
  start_at(0);
  steps(1, 5);
  EXPECT_EQ(after(59, true).state, RunState::running);
  EXPECT_EQ(after(59, std::nullopt).state, RunState::running) << "a file system without locks";
}

TEST_F(State, IsHungWhereAJobIsThereAndNoSignComes) {
  start_at(0);
  steps(1, 5);
  EXPECT_EQ(after(61, true).state, RunState::hung);
  EXPECT_EQ(after(61, std::nullopt).state, RunState::dead);
}

TEST_F(State, OfLongStepsIsHungOnlyAfterManyOfThem) {
  start_at(0);
  add("metrics.jsonl",
      metrics::to_json(metrics::StepRecord{.step = 1, .loss = 2, .step_s = 30}) + "\n");
  EXPECT_EQ(after(599, true).state, RunState::running);
  EXPECT_EQ(after(601, true).state, RunState::hung);
}

TEST_F(State, IsDeadWhereItsJobIsGoneWithoutAWord) {
  start_at(0);
  steps(1, 5);
  EXPECT_EQ(after(1, false).state, RunState::dead);
}

TEST_F(State, OfADeadRunIsSaidWithTheLastErrorOfItsLog) {
  put("finetune.log",
      "1970-01-02 00:00:00 error: of an earlier start\n"
      "2001-01-01 00:00:00 error: rank 3 on n2 is late\n"
      "2001-01-01 00:00:01 warning: slow\n"
      "  error: no line of its own\n");
  metrics::append_start(folder(), {.unix_time_s = 9e8, .step = 0, .num_steps = 20});
  steps(1, 5);
  const Verdict verdict = after(1, false);
  EXPECT_EQ(verdict.state, RunState::dead);
  EXPECT_NE(verdict.why.find("its last error: rank 3 on n2 is late"), std::string::npos)
      << verdict.why;
  EXPECT_EQ(run_.problems.size(), 3u);
  EXPECT_EQ(after(1, true).state, RunState::running);
  metrics::append_start(folder(), {.unix_time_s = 1.1e9, .step = 5, .num_steps = 20});
  EXPECT_EQ(after(1, false).why.find("rank 3"), std::string::npos) << "of the start before";
}

TEST_F(State, IsStartingUntilItsFirstStep) {
  start_at(0);
  EXPECT_EQ(after(59, true).state, RunState::starting);
  EXPECT_EQ(after(599, true).state, RunState::starting) << "train.hang_timeout_s is 600";
  EXPECT_EQ(after(601, true).state, RunState::hung);
  put("input.resolved.toml", "[train]\nhang_timeout_s = 1200.0\n");
  EXPECT_EQ(after(601, true).state, RunState::starting);
}

TEST_F(State, WaitsAfterAStopWithACheckpoint) {
  start_at(0);
  steps(1, 5);
  end_at(5, 75, "a signal asked to stop");
  const Verdict verdict = after(1e5, false);
  EXPECT_EQ(verdict.state, RunState::waiting);
  EXPECT_NE(verdict.why.find("a signal asked to stop"), std::string::npos);
  EXPECT_EQ(after(1, true).state, RunState::starting) << "the next job is there";
}

TEST_F(State, HasFailedWhereTheLastStartSaysHow) {
  start_at(0);
  steps(1, 5);
  end_at(5, 71, "loss is not finite");
  const Verdict verdict = after(1, false);
  EXPECT_EQ(verdict.state, RunState::failed);
  EXPECT_NE(verdict.why.find("loss is not finite"), std::string::npos);
}

TEST_F(State, KnowsRestarts) {
  start_at(0);
  steps(1, 5);
  start_at(4);
  steps(5, 6);
  const Verdict verdict = after(1, true);
  EXPECT_EQ(verdict.state, RunState::running);
  EXPECT_EQ(verdict.num_restarts, 1);
  EXPECT_EQ(seconds_left(run_), 7.0);
}

TEST_F(State, OfAFolderWithoutStartsIsSaidAsFarAsItIsKnown) {
  put(".lock", "");
  EXPECT_EQ(after(1, false).state, RunState::waiting);
  EXPECT_EQ(after(1, true).state, RunState::starting);
  steps(1, 5);
  EXPECT_EQ(after(1, true).state, RunState::running);
  EXPECT_EQ(after(1, false).state, RunState::waiting);
  put("input.resolved.toml", "[train]\nmax_steps = 5\n");
  EXPECT_EQ(after(1, false).state, RunState::finished);
}

TEST_F(State, SeesWhetherAJobHoldsTheFolder) {
  EXPECT_EQ(is_held(folder()), std::nullopt);
  put(".lock", "job 7");
  EXPECT_EQ(is_held(folder()), false);
  const core::File file(folder() / ".lock", core::File::Mode::create_or_write);
  ASSERT_EQ(core::try_lock(file.descriptor(), core::Lock::exclusive), core::Locked::yes);
  EXPECT_EQ(is_held(folder()), true);
}

TEST_F(State, HasACodeOfItsOwn) {
  std::set<int> codes;
  for (const auto state : {RunState::finished, RunState::running, RunState::starting,
                           RunState::waiting, RunState::hung, RunState::dead, RunState::failed})
    codes.insert(exit_code(state));
  EXPECT_EQ(codes, (std::set<int>{0, 10, 11, 12, 13, 14, 15}));
}

TEST_F(State, IsShownInLinesThatFitTheTerminal) {
  start_at(0);
  steps(1, 10);
  const Verdict verdict = after(1, true);
  const auto lines = screen(run_, verdict, run_.last_sign_unix_s + 1, {.columns = 60, .rows = 24},
                            plot::Letters::ascii);
  ASSERT_LE(lines.size(), 24u);
  EXPECT_TRUE(lines[0].find("running") != std::string::npos) << lines[0];
  EXPECT_EQ(lines[1], "############............  step 10 of 20  50 %  5 s left");
  std::string all;
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), 60u) << line;
    all += line + "\n";
  }
  EXPECT_NE(all.find("0.5 s per step, 1,234 tokens/s"), std::string::npos) << all;
  EXPECT_NE(all.find("planned 1.00 MiB"), std::string::npos) << all;
  EXPECT_NE(all.find('*'), std::string::npos) << all;
}

TEST_F(State, IsShownWithoutWhatCouldSteerTheTerminal) {
  start_at(0);
  metrics::TimeReport times;
  times.num_steps = 1;
  times.parts[0] = {1, 1, 1};
  times.slowest_host = "n1";
  std::string row = metrics::to_json(metrics::StepRecord{.step = 1, .loss = 2, .times = times});
  row.replace(row.find("n1"), 2, "\\u001b[2J\\u009b");
  put("metrics.jsonl", row + "\n");
  end_at(1, 71, "\x1b]0;title\x07\nnew line");
  const Verdict verdict = after(1, false);
  for (const std::string& line : screen(run_, verdict, 0, {}, plot::Letters::ascii))
    for (const char c : line)
      EXPECT_GE(static_cast<unsigned char>(c), 0x20) << line;
  EXPECT_EQ(status_line(run_, verdict).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace finetune::report
