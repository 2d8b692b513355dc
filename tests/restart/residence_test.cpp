// SPDX-License-Identifier: Apache-2.0
// Runs in processes that stay are those of processes of their own: files, bits, output, exit codes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "restart/job.hpp"
#include "support/folders.hpp"

namespace finetune::tests::residence_test {
namespace {

namespace fs = std::filesystem;

constexpr int exit_resubmit = 75;

/// A run that touches what a process holds once: memory told apart, profiles, event files, answers.
Job job_of(const std::string& name) {
  return {"residence/" + name,
          with(short_run("bf16-mixed", 8), {"train.determinism=topology", "profile.active=2",
                                            "profile.memory=true", "metrics.tensorboard=true"})};
}

std::set<std::string> files_of(const Job& job) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(job.output()))
    // Event files are named after process and time.
    if (entry.path().filename().string().find("tfevents") == std::string::npos)
      files.insert(fs::relative(entry.path(), job.output()));
  return files;
}

/// What was printed but for figures, which are of time and memory.
std::string words_of(const std::string& text) {
  std::string words;
  for (const char c : text)
    if ((c < '0' || c > '9') && c != '.' && c != ' ') words += c;
  return words;
}

core::Json facts_of(const Job& job) {
  const std::string text = read_file(job.output() / "starts.jsonl");
  core::Json facts = core::parse_json(text.substr(0, text.find('\n')), "starts.jsonl").at("start");
  for (const char* of_time : {"unix_time_s", "run_id"})
    facts.erase(of_time);
  return facts;
}

void expect_same(const Job& job, const Job& reference) {
  expect_same_metrics(job, reference);
  EXPECT_EQ(files_of(job), files_of(reference));
  EXPECT_TRUE(job.checkpoint_bytes(8) == reference.checkpoint_bytes(8));
  EXPECT_EQ(facts_of(job), facts_of(reference));
  EXPECT_EQ(count(read_file(job.output() / "finetune.log"), "\n"),
            count(read_file(reference.output() / "finetune.log"), "\n"));
}

class Residence : public testing::TestWithParam<int> {};

TEST_P(Residence, RunsADeckTwiceAsAProcessOfItsOwnDoes) {
  const int ranks = GetParam();
  const std::string number = std::to_string(ranks);
  const Job alone = job_of("alone" + number);
  const Outcome expected = run_program(alone.command(ranks), alone.folder());
  ASSERT_EQ(expected.exit_code, 0) << expected.text();
  for (const char* name : {"first", "second"}) {
    const Job job = job_of(name + number);
    ASSERT_TRUE(may_stay(ranks, job.arguments()));
    const Outcome outcome = job.run(ranks);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
    expect_same(job, alone);
    EXPECT_EQ(words_of(outcome.err), words_of(expected.err)) << outcome.err << expected.err;
    EXPECT_EQ(count(outcome.out, "\n"), count(expected.out, "\n")) << outcome.out << expected.out;
  }
}

TEST_P(Residence, StopsAndGoesOnAsProcessesOfTheirOwnDo) {
  const int ranks = GetParam();
  const Job whole = job_of("whole" + std::to_string(ranks));
  const Job parts = job_of("parts" + std::to_string(ranks));
  ASSERT_EQ(run_program(whole.command(ranks), whole.folder()).exit_code, 0);
  EXPECT_EQ(parts.run(ranks, {"train.stop_after_steps=3"}).exit_code, exit_resubmit);
  EXPECT_EQ(parts.run(ranks).exit_code, 0);
  expect_same_metrics(parts, whole);
  EXPECT_TRUE(parts.checkpoint_bytes(8) == whole.checkpoint_bytes(8));
}

TEST_P(Residence, IsUnharmedByARunThatFails) {
  const int ranks = GetParam();
  const std::string number = std::to_string(ranks);
  const Job alone = job_of("unharmed" + number);
  ASSERT_EQ(run_program(alone.command(ranks), alone.folder()).exit_code, 0);
  const std::vector<Words> bad = {{"optimizer.lr=-1"}, {"model.path=nowhere"}, {"parallel.tp=7"}};
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const Job failing = job_of("failing" + number);
    const Outcome expected = run_program(failing.command(ranks, bad[i]), failing.folder());
    const Outcome outcome = failing.run(ranks, bad[i]);
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_EQ(outcome.exit_code, expected.exit_code) << outcome.text() << expected.text();
    EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.text();
    const Job job = job_of("after" + std::to_string(i) + "." + number);
    ASSERT_EQ(job.run(ranks).exit_code, 0);
    expect_same(job, alone);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Residence, testing::Values(1, 3),
                         [](const auto& info) { return "R" + std::to_string(info.param); });

TEST(ResidenceOfFaults, EndsWithARunThatAbortsAndTheNextHasAnother) {
  const Job job = job_of("aborts");
  ::setenv("FINETUNE_FAULT", "step.fwd:1:3:exc", 1);
  const Outcome aborted = job.run(2);
  ::unsetenv("FINETUNE_FAULT");
  EXPECT_TRUE(aborted.ended_with(70)) << aborted.exit_code << aborted.text();
  EXPECT_EQ(count(aborted.err, "error: rank 1 on "), 1) << aborted.text();
  const Outcome next = job.run(2);
  EXPECT_EQ(next.exit_code, 0) << next.text();
  // The error, and what the next start says of how that one ended.
  EXPECT_EQ(count(read_file(job.output() / "finetune.log"), "planted fault"), 2);
}

TEST(ResidenceOfFaults, ForgetsASignalWithTheRun) {
  const Job job = job_of("signal");
  ::setenv("FINETUNE_FAULT", "step.fwd:1:3:usr1", 1);
  const Outcome stopped = job.run(2);
  ::unsetenv("FINETUNE_FAULT");
  EXPECT_EQ(stopped.exit_code, exit_resubmit) << stopped.text();
  EXPECT_EQ(job.run(2).exit_code, 0);
}

TEST(ResidenceOfCommands, HasTheirOutputAndCodes) {
  const Job job = job_of("commands");
  ASSERT_EQ(job.run(1).exit_code, 0);
  const std::vector<Words> commands = {{"verify", "output"},
                                       {"verify", "nowhere"},
                                       {"plan", "job.toml"},
                                       {"generate", "model", "One", "--max-tokens", "4"},
                                       {"plan", "job.toml", "no.key=1"},
                                       {"export"}};
  for (const Words& words : commands) {
    ASSERT_TRUE(may_stay(1, words));
    const Outcome expected = run_program(finetune_on(1, words), job.folder());
    const Outcome outcome = run_finetune(1, words, job.folder());
    EXPECT_EQ(outcome.exit_code, expected.exit_code) << words.front();
    EXPECT_EQ(outcome.out, expected.out);
    EXPECT_EQ(outcome.err, expected.err);
  }
}

TEST(ResidenceOfProcesses, IsNotForThoseThatAreThePoint) {
  EXPECT_TRUE(may_stay(4, {"job.toml"}));
  EXPECT_FALSE(may_stay(5, {"job.toml"}));
  EXPECT_FALSE(may_stay(1, {"job.toml", "train.max_seconds=10"}));
  EXPECT_FALSE(may_stay(1, {"watch", "output"}));
  ::setenv("FINETUNE_FAULT", "step.fwd:0:3:kill", 1);
  EXPECT_FALSE(may_stay(1, {"job.toml"}));
  ::unsetenv("FINETUNE_FAULT");
  ::setenv("FINETUNE_COMMUNICATE_ALONE", "1", 1);
  EXPECT_FALSE(may_stay(1, {"job.toml"}));
  ::unsetenv("FINETUNE_COMMUNICATE_ALONE");
  EXPECT_TRUE(may_stay(1, {"job.toml"}));
}

}  // namespace
}  // namespace finetune::tests::residence_test
