// SPDX-License-Identifier: Apache-2.0
// finetune.log and starts.jsonl over stops, kills and failures: a line for each start, which says
// how the one before ended.
#include <gtest/gtest.h>

#include <csignal>
#include <sstream>

#include "report/starts.hpp"
#include "restart/job.hpp"

namespace finetune::tests::log_test {
namespace {

/// Texts of the log that begin with `words`, without their times.
std::vector<std::string> texts_with(const Job& job, const std::string& words) {
  constexpr std::size_t time_length = 20;
  std::vector<std::string> texts;
  std::stringstream log(read_file(job.output() / "finetune.log"));
  for (std::string line; std::getline(log, line);)
    if (line.size() > time_length && line.substr(time_length).starts_with(words))
      texts.push_back(line.substr(time_length));
  return texts;
}

/// What is behind "start N: " in the last of them.
std::string last_end(const Job& job) {
  const auto starts = texts_with(job, "start ");
  if (starts.empty()) return "no start";
  return starts.back().substr(std::min(starts.back().find("; "), starts.back().size()));
}

Outcome run_with_fault(const Job& job, int ranks, const std::string& fault) {
  Words words = job.command(ranks);
  words.insert(words.begin(), {"env", "FINETUNE_FAULT=" + fault});
  return run_program(words, job.folder());
}

TEST(Log, HasALineForEachStartWithTheReasonOfTheEndBefore) {
  const Job job("log.starts", short_run("32-true"));
  EXPECT_EQ(job.run(2, {"train.stop_after_steps=4"}).exit_code, 75);
  EXPECT_EQ(last_end(job), "");
  ASSERT_TRUE(kill_after(job, 2, 14));
  EXPECT_EQ(last_end(job),
            "; start 1: train.stop_after_steps are done (after step 4, exit code 75)");
  const Outcome refused = job.run(2, {"train.seed=7"});
  EXPECT_NE(refused.exit_code, 0) << "it trains something else";
  const Outcome last = job.run(2);
  ASSERT_EQ(last.exit_code, 0) << last.text();
  EXPECT_TRUE(
      last_end(job).starts_with("; start 2: said nothing: killed, or ended by another rank "
                                "(its log ends at "))
      << last_end(job);
  EXPECT_EQ(count(last.out, last_end(job)), 1) << "the terminal says so, too";
  EXPECT_EQ(texts_with(job, "start ").size(), 3u);
  EXPECT_EQ(texts_with(job, "=== finetune job.toml").size(), 4u);
  EXPECT_EQ(texts_with(job, "done: ").size(), 1u);

  // A finished run has nothing to begin.
  EXPECT_EQ(job.run(2).exit_code, 0);
  EXPECT_EQ(texts_with(job, "start ").size(), 3u);
  EXPECT_EQ(report::last_start(job.output()).end,
            "all 20 steps are done (after step 20, exit code 0)");
}

TEST(Log, HasTheErrorThatAnotherRankAloneSaw) {
  const Job job("log.other_rank", short_run("32-true", 6));
  const Outcome failed = run_with_fault(job, 2, "step.fwd:1:9:exc");
  EXPECT_TRUE(failed.ended_with(70)) << failed.exit_code << failed.text();
  const auto errors = texts_with(job, "error: ");
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_NE(errors[0].find("planted fault at step.fwd"), std::string::npos) << errors[0];
  const auto starts = report::read_starts(job.output());
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_FALSE(starts[0].end) << "the first rank had no time for it";
  ASSERT_EQ(job.run(2).exit_code, 0);
  EXPECT_NE(last_end(job).find("killed, or ended by another rank; the last error: "),
            std::string::npos);
  EXPECT_NE(last_end(job).find("planted fault at step.fwd"), std::string::npos) << last_end(job);
}

TEST(Log, HasTheErrorOfAStartRatherThanWhatAskedItToStop) {
  const Job job("log.save", short_run("32-true", 6));
  const Outcome failed = run_with_fault(job, 1, "step.fwd:0:2:usr1,ckpt.fsync:*:*:eio");
  const auto starts = report::read_starts(job.output());
  ASSERT_EQ(starts.size(), 1u) << failed.text();
  ASSERT_TRUE(starts[0].end) << failed.text();
  EXPECT_EQ(starts[0].end->exit_code, failed.exit_code);
  EXPECT_NE(failed.exit_code, 75) << failed.text();
  EXPECT_EQ(count(failed.out, "a signal asks to stop"), 1) << failed.text();
  EXPECT_EQ(starts[0].end->reason.find("a signal asked to stop"), std::string::npos)
      << starts[0].end->reason;
}

}  // namespace
}  // namespace finetune::tests::log_test
