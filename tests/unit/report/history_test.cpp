// SPDX-License-Identifier: Apache-2.0
// Output folders as runs leave them, whole and broken.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>

#include "core/error.hpp"
#include "metrics/records.hpp"
#include "metrics/start_file.hpp"
#include "report/run_history.hpp"
#include "unit/report/folder.hpp"

namespace finetune::report {
namespace {

using tests::RunFolderFixture;

class History : public RunFolderFixture {};

std::string step_line(std::int64_t step, double loss) {
  return metrics::to_json(metrics::StepRecord{
             .step = step, .loss = loss, .grad_norm = 2, .lr = 1e-3, .tokens = 64, .step_s = 0.5}) +
         "\n";
}

TEST_F(History, HasAllRowsOfTheRecordsThatARunWrites) {
  metrics::TimeReport times;
  times.num_steps = 2;
  times.parts[0] = {1, 2, 3};
  times.slowest_rank = 3;
  times.slowest_host = "n2";
  times.sent_bytes = {{"fsdp", 1000}};
  put("metrics.jsonl",
      metrics::to_json(metrics::ValidationRecord{0, 2.5, 0.25}) + "\n" +
          metrics::to_json(metrics::EvaluationRecord{0, {{"arc/accuracy", 0.5, 0.125}}}) + "\n" +
          step_line(1, 2.25) +
          metrics::to_json(
              metrics::StepRecord{.step = 2, .loss = 2, .epoch = 0.5, .times = times}) +
          "\n" + metrics::to_json(metrics::CheckpointRecord{2, "shared", 4096, 0.5, 1, 1, 2}) +
          "\n" + metrics::to_json(metrics::ResumeRecord{2, 4096, 0.125}) + "\n");
  const RunHistory run = read_run(folder());
  ASSERT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(run.steps[0].loss, 2.25);
  EXPECT_EQ(run.steps[0].grad_norm, 2);
  EXPECT_EQ(run.steps[1].epoch, 0.5);
  ASSERT_EQ(run.validations.size(), 1u);
  EXPECT_EQ(run.validations[0].exact_match, 0.25);
  ASSERT_EQ(run.evaluations.size(), 1u);
  ASSERT_NE(run.evaluations[0].find("arc/accuracy"), nullptr);
  EXPECT_EQ(run.evaluations[0].find("arc/accuracy")->value, 0.5);
  EXPECT_EQ(run.evaluations[0].find("arc/accuracy")->standard_error, 0.125);
  EXPECT_EQ(run.evaluations[0].find("arc"), nullptr);
  ASSERT_EQ(run.times.size(), 1u);
  EXPECT_EQ(run.times[0].num_steps, 2);
  EXPECT_EQ(run.times[0].parts[0].first, "compute_s");
  EXPECT_EQ(run.times[0].parts[0].second.max, 3);
  EXPECT_EQ(run.times[0].slowest_rank, 3);
  EXPECT_EQ(run.times[0].slowest_host, "n2");
  EXPECT_EQ(run.times[0].sent_bytes.at("fsdp"), 1000);
  ASSERT_EQ(run.checkpoints.size(), 1u);
  EXPECT_EQ(run.checkpoints[0].bytes, 4096);
  ASSERT_EQ(run.resumes.size(), 1u);
  EXPECT_EQ(run.resumes[0].read_s, 0.125);
  EXPECT_EQ(run.num_unreadable, 0);
}

TEST_F(History, LeavesOutALineThatAKillCutAndTakesItOnceItIsWhole) {
  const std::string third = step_line(3, 1.5);
  put("metrics.jsonl", step_line(1, 2) + step_line(2, 1.75) + third.substr(0, 20));
  HistoryReader reader(folder());
  EXPECT_EQ(reader.history().steps.size(), 2u);
  EXPECT_EQ(reader.history().num_unreadable, 0);
  add("metrics.jsonl", third.substr(20));
  ASSERT_EQ(reader.update().steps.size(), 3u);
  EXPECT_EQ(reader.history().steps[2].loss, 1.5);
}

TEST_F(History, StartsAnewWhereAStartCutTheFileAndWroteAsMuchAgain) {
  put("metrics.jsonl", step_line(1, 2) + step_line(2, 3) + step_line(3, 4));
  HistoryReader reader(folder());
  ASSERT_EQ(reader.history().steps.size(), 3u);
  // As long as before, and longer: neither shows in the size.
  put("metrics.jsonl", step_line(1, 2) + step_line(2, 5) + step_line(3, 6) + step_line(4, 7));
  const RunHistory& run = reader.update();
  ASSERT_EQ(run.steps.size(), 4u);
  EXPECT_EQ(run.steps[1].loss, 5);
}

TEST_F(History, TakesFieldsThatAreMissingOrUnknownAndSkipsWhatIsNoRow) {
  put("metrics.jsonl",
      "{\"step\": 1, \"loss\": 2}\n"
      "no JSON\n"
      "[1, 2]\n"
      "{\"step\": \"two\", \"loss\": 2}\n"
      "{\"step\": 2, \"loss\": null, \"lr\": \"high\", \"new\": {\"deep\": [1]}, \"times\": 3}\n"
      "{\"step\": 3, \"something\": 4}\n"
      "{\"step\": 3, \"answers\": [{\"prompt\": \"p\", \"answer\": \"a\"}, 7]}\n"
      "{\"step\": 4, \"loss\": 1, \"mfu\": 0.5, \"unix_time_s\": 17, \"peak_bytes\": {\"process\": "
      "9}}\n");
  const RunHistory run = read_run(folder());
  ASSERT_EQ(run.steps.size(), 3u);
  EXPECT_TRUE(std::isnan(run.steps[0].lr));
  EXPECT_TRUE(std::isnan(run.steps[1].loss));
  EXPECT_EQ(run.steps[2].mfu, 0.5);
  EXPECT_EQ(run.steps[2].unix_time_s, 17);
  EXPECT_EQ(run.num_unreadable, 2);
  EXPECT_TRUE(run.times.empty());
  ASSERT_EQ(run.memory.size(), 1u);
  EXPECT_EQ(run.memory[0].process_bytes, 9);
  ASSERT_EQ(run.answers.size(), 1u);
  EXPECT_EQ(run.answers[0].answers[0].answer, "a");
}

TEST_F(History, IsOneCurveWhereStepsWereDoneTwice) {
  put("metrics.jsonl", step_line(1, 1) + step_line(2, 2) + step_line(3, 3) + step_line(2, 20));
  const RunHistory run = read_run(folder());
  ASSERT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(run.steps[1].loss, 20);
}

TEST_F(History, KnowsItsStartsAndTheirEnds) {
  metrics::StartRecord first{.unix_time_s = 10, .step = 0, .num_steps = 20, .hosts = {"n1", "n2"}};
  metrics::append_start(folder(), first);
  metrics::append_end(folder(), {15, 8, 75, "a signal \"asked\"\nto stop"});
  add("starts.jsonl", "{\"start\": {\"step\": 3");  // a full disk
  first.step = 8;
  metrics::append_start(folder(), first);
  const RunHistory run = read_run(folder());
  ASSERT_EQ(run.starts.size(), 2u);
  ASSERT_TRUE(run.starts[0].end);
  EXPECT_EQ(run.starts[0].end->exit_code, 75);
  EXPECT_EQ(run.starts[0].end->reason, "a signal \"asked\"\nto stop");
  EXPECT_EQ(run.starts[1].step, 8);
  EXPECT_FALSE(run.starts[1].end);
  EXPECT_EQ(run.num_steps(), 20);
}

TEST_F(History, ReadsTheDeckAndFoldersOfCheckpoints) {
  put("metrics.jsonl", step_line(1, 1));
  put("input.resolved.toml", "[train]\nmax_steps = 7\noutput = \"runs/a\"\n");
  std::filesystem::create_directory(folder() / "step-0000000200");
  std::filesystem::create_directory(folder() / "step-0000000100");
  const RunHistory run = read_run(folder());
  EXPECT_EQ(run.deck_text("train.output"), "runs/a");
  EXPECT_EQ(run.num_steps(), 7);
  EXPECT_EQ(run.checkpoint_folders, (std::vector<std::int64_t>{100, 200}));
}

TEST_F(History, NamesCheckpointsOfOtherBranches) {
  put("metrics.jsonl", step_line(1, 1));
  std::filesystem::create_directories(folder() / "step-0000000100");
  HistoryReader reader(folder());
  EXPECT_EQ(reader.update().other_branches, "");
  // The run went back: what it left was moved, and its note written.
  std::filesystem::create_directories(folder() / "branch-1/step-0000000200");
  put(".run.json", R"({"id": "new", "fingerprint": "", "step": 100, "starts": 1})");
  EXPECT_EQ(reader.update().other_branches, "branch-1 (step-0000000200)");
  EXPECT_EQ(reader.update().checkpoint_folders, (std::vector<std::int64_t>{100}));
}

TEST_F(History, DoesNotWaitForAPipe) {
  ASSERT_EQ(::mkfifo((folder() / "metrics.jsonl").c_str(), 0600), 0);
  EXPECT_TRUE(read_run(folder()).steps.empty());
}

TEST_F(History, OfAFolderWithoutARunIsRefused) {
  EXPECT_THROW(read_run(folder()), core::Error);
  EXPECT_THROW(read_run(folder() / "missing"), core::Error);
}

}  // namespace
}  // namespace finetune::report
