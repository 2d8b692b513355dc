// SPDX-License-Identifier: Apache-2.0
// Runs that are asked to stop, run out of time, lose a rank, share a folder or never get on.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "fault/harness.hpp"

namespace finetune::tests::stop_test {
namespace {

namespace fs = std::filesystem;

constexpr int ranks = 2;

/// More steps than anybody waits for, saved at the end only unless said otherwise.
Job endless(const std::string& name, int save_steps = 0) {
  auto settings = save_every_step(1'000'000);
  std::erase(settings, "checkpoint.save_steps=1");
  settings.push_back("checkpoint.save_steps=" + std::to_string(save_steps));
  return {"fault.stop." + name, settings};
}

void send(const Job& job, int rank, int signal) {
  const auto pids = ranks_of(job);
  ASSERT_TRUE(pids.contains(rank));
  EXPECT_EQ(::kill(pids.at(rank), signal), 0);
}

/// Expects that all stopped after the same step, that this step is saved, and that it is good.
void expect_stopped_with_checkpoint(const Job& job, const Outcome& outcome) {
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, exits::stopped_saved) << outcome.text();
  const std::int64_t step = last_step(job);
  EXPECT_EQ(count(outcome.out, "stopped after step " + std::to_string(step) + " of "), 1)
      << outcome.text();
  const auto steps = steps_on_disk(job);
  EXPECT_EQ(steps.empty() ? 0 : steps.back(), step);
  EXPECT_EQ(verify(job).exit_code, exits::done);
  EXPECT_EQ(leftovers(job), std::vector<std::string>());
  EXPECT_TRUE(all_ranks_are_gone(job));
}

struct Request {
  std::string name;
  int rank;
  int signal;
};

class SignalToOneRank : public testing::TestWithParam<Request> {};

TEST_P(SignalToOneRank, StopsAllWithACheckpoint) {
  const Job job = endless(GetParam().name);
  Process process(command(job, ranks, {}), job.folder());
  ASSERT_TRUE(wait_for_step(process, job, 2));
  send(job, GetParam().rank, GetParam().signal);
  expect_stopped_with_checkpoint(job, process.wait(run_limit));
}

INSTANTIATE_TEST_SUITE_P(Signals, SignalToOneRank,
                         testing::Values(Request{"Usr1", 1, SIGUSR1}, Request{"Term", 0, SIGTERM},
                                         Request{"Int", 1, SIGINT}),
                         [](const auto& info) { return info.param.name; });

/// Waits until a save is under way.
void wait_for_save(Process& process, const Job& job) {
  while (leftovers(job).empty() && process.read_for(2)) {
  }
  EXPECT_FALSE(leftovers(job).empty());
}

TEST(Signals, TwiceForTheSchedulersWarningDoNoHarm) {
  const Job job = endless("usr1.twice");
  Process process(command(job, ranks, {"FINETUNE_FAULT=ckpt.fsync:*:*:slow=300"}), job.folder());
  ASSERT_TRUE(wait_for_step(process, job, 2));
  send(job, 0, SIGUSR1);
  wait_for_save(process, job);
  send(job, 0, SIGUSR1);
  expect_stopped_with_checkpoint(job, process.wait(run_limit));
}

TEST(Signals, ForTheEndDuringASaveLetItFinish) {
  const Job job = endless("term.save", 2);
  Process process(command(job, ranks, {"FINETUNE_FAULT=ckpt.fsync:*:*:slow=300"}), job.folder());
  ASSERT_TRUE(wait_for_step(process, job, 2));
  wait_for_save(process, job);
  send(job, 1, SIGTERM);
  expect_stopped_with_checkpoint(job, process.wait(run_limit));
}

/// Keeps reading what `process` prints for so long.
void let_pass(Process& process, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end && process.read_for(50)) {
  }
}

TEST(Signals, TwiceForTheEndAtOnceAreThoseOfAPreemptionAndLetTheSaveFinish) {
  const Job job = endless("term.preempted");
  Process process(command(job, ranks, {"FINETUNE_FAULT=ckpt.fsync:*:*:slow=300"}), job.folder());
  ASSERT_TRUE(wait_for_step(process, job, 2));
  for (const int rank : {0, 1, 0, 1})
    send(job, rank, SIGTERM);
  expect_stopped_with_checkpoint(job, process.wait(run_limit));
}

TEST(Signals, TwiceForTheEndLeaveTheOlderCheckpoint) {
  const Job job = endless("term.twice");
  const Outcome first = run(job, ranks, {}, {"train.stop_after_steps=2"});
  EXPECT_EQ(first.exit_code, exits::stopped_saved) << first.text();
  // A save that would never end.
  Process process(command(job, ranks, {"FINETUNE_FAULT=ckpt.fsync:*:*:slow=600000"}), job.folder());
  ASSERT_TRUE(wait_for_step(process, job, 4));
  send(job, 0, SIGTERM);
  wait_for_save(process, job);
  // Only then it is somebody who asks again (train::StopSignals).
  let_pass(process, std::chrono::milliseconds(3100));
  send(job, 0, SIGTERM);
  const Outcome outcome = process.wait(run_limit);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, exits::stopped_unsaved) << outcome.text();
  EXPECT_EQ(steps_on_disk(job), std::vector<std::int64_t>{2});
  EXPECT_EQ(verify(job).exit_code, exits::done);
  EXPECT_TRUE(all_ranks_are_gone(job));
}

TEST(Signals, ForTheEndWithAFailingSaveTellOfTheOlderCheckpoint) {
  const Job job = endless("term.eio");
  const Outcome first = run(job, ranks, {}, {"train.stop_after_steps=2"});
  EXPECT_EQ(first.exit_code, exits::stopped_saved) << first.text();
  const Outcome outcome =
      run(job, ranks, {"FINETUNE_FAULT=ckpt.fsync:1:*:eio"}, {"train.stop_after_steps=2"});
  EXPECT_EQ(outcome.exit_code, exits::stopped_unsaved) << outcome.text();
  EXPECT_EQ(steps_on_disk(job), std::vector<std::int64_t>{2});
  EXPECT_EQ(leftovers(job), std::vector<std::string>());
}

TEST(TimeLimit, IsKeptWithACheckpoint) {
  const Job job = endless("time");
  const Outcome outcome = run(job, ranks, {}, {"train.max_seconds=15"});
  expect_stopped_with_checkpoint(job, outcome);
  EXPECT_EQ(count(outcome.out, "train.max_seconds = 15: "), 1) << outcome.out;
}

TEST(FailingRank, EndsTheJobWithItsCode) {
  const Job job = endless("exc", 1);
  const Outcome outcome = run(job, ranks, {"FINETUNE_FAULT=step.fwd:1:9:exc"});
  EXPECT_TRUE(outcome.ended_with(exits::bug)) << outcome.exit_code << outcome.text();
  EXPECT_EQ(count(outcome.err, "planted fault at step.fwd"), 1) << outcome.text();
  EXPECT_TRUE(all_ranks_are_gone(job));
  EXPECT_EQ(verify(job).exit_code, exits::done);
}

TEST(SharedFolder, IsRefusedToASecondJobAndFreeAfterAKill) {
  const Job job = endless("lock", 1);
  Process first(command(job, ranks, {}), job.folder());
  ASSERT_TRUE(wait_for_step(first, job, 2));
  const Outcome second = run(job, 1);
  EXPECT_EQ(second.exit_code, exits::cannot_create) << second.text();
  EXPECT_EQ(count(second.err, "error: output: is in use by "), 1) << second.text();
  EXPECT_FALSE(ranks_of(job).empty());
  first.kill();
  first.wait(run_limit);
  ASSERT_TRUE(all_ranks_are_gone(job));
  const Outcome third = run(job, 1, {}, {"train.stop_after_steps=1"});
  EXPECT_EQ(third.exit_code, exits::stopped_saved) << third.text();
}

TEST(Starts, WithoutProgressEndAfterThree) {
  const Job job = endless("starts", 2);
  const Outcome begun = run(job, 1, {}, {"train.stop_after_steps=2"});
  EXPECT_EQ(begun.exit_code, exits::stopped_saved) << begun.text();
  const Environment dies = {"FINETUNE_FAULT=step.fwd:0:1:kill"};
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(run(job, 1, dies).exit_code, 128 + SIGKILL);
  const Outcome refused = run(job, 1);
  EXPECT_EQ(refused.exit_code, exits::no_progress) << refused.text();
  EXPECT_EQ(count(refused.err, "error: output: 3 starts from step 2 "), 1) << refused.text();
  EXPECT_EQ(steps_on_disk(job), std::vector<std::int64_t>{2});

  // Another deck is another attempt, and a checkpoint ends the count.
  const Outcome changed = run(job, 1, {}, {"train.stop_after_steps=1", "metrics.log_steps=7"});
  EXPECT_EQ(changed.exit_code, exits::stopped_saved) << changed.text();
  EXPECT_EQ(run(job, 1, dies).exit_code, 128 + SIGKILL);
}

}  // namespace
}  // namespace finetune::tests::stop_test
