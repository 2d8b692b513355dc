// SPDX-License-Identifier: Apache-2.0
// Runs that save after every step are killed at random moments; whatever they leave, the next start
// ends with the bits of the run that nobody killed.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <random>
#include <thread>

#include "fault/harness.hpp"

namespace finetune::tests::kill_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr int ranks = 2;
constexpr int num_steps = 10;

enum Moment { before_first, in_first_save, in_save, between, after_end, num_moments };
constexpr std::array<const char*, num_moments> moment_names = {
    "before the first save", "in the first save", "in a later save", "between saves",
    "after the end"};

/// Every write waits a little, so that most of the run's time is spent in saves and a kill can land
/// between any two of their calls.
std::vector<std::string> slow_command(const Job& job) {
  return command(job, ranks, with_shim(job, {"FINETUNE_SHIM_SLOW_MS=1"}));
}

Milliseconds time_after_first_step(const Job& job) {
  Process process(slow_command(job), job.folder());
  EXPECT_TRUE(wait_for_step(process, job));
  const auto begin = Clock::now();
  const Outcome outcome = process.wait(run_limit);
  EXPECT_EQ(outcome.exit_code, exits::done) << outcome.text();
  return Clock::now() - begin;
}

Moment moment_of(const Job& job, const Outcome& killed) {
  if (killed.exit_code == exits::done) return after_end;
  const auto names = leftovers(job);
  const bool is_saving =
      std::ranges::any_of(names, [](const std::string& name) { return name.starts_with(".tmp-"); });
  const bool is_first = steps_on_disk(job).empty();
  if (is_saving) return is_first ? in_first_save : in_save;
  return is_first ? before_first : between;
}

/// Starts the job and kills it `delay` after its first step.
Outcome run_and_kill(const Job& job, Milliseconds delay, std::optional<int> rank) {
  Process process(slow_command(job), job.folder());
  if (wait_for_step(process, job)) {
    const auto end = Clock::now() + delay;
    // Reads on: a full pipe would stop the run.
    while (Clock::now() < end && process.read_for(1)) {
    }
    const auto pids = ranks_of(job);
    if (!rank) {
      process.kill();
    } else if (const auto found = pids.find(*rank); found != pids.end()) {
      ::kill(found->second, SIGKILL);
    }
  }
  Outcome outcome = process.wait(run_limit);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_TRUE(all_ranks_are_gone(job));
  return outcome;
}

TEST(KilledRun, GoesOnFromAGoodCheckpointToTheSameBits) {
  const int runs = count_from_environment("FINETUNE_KILL_RUNS", 6);
  const int seed = count_from_environment("FINETUNE_KILL_SEED", 1);
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  const WholeRun whole("fault.kill.whole", ranks, num_steps);
  const std::string weights = whole.job().exported();
  const Milliseconds length =
      time_after_first_step(Job("fault.kill.length", save_every_step(num_steps)));

  std::array<std::array<int, 2>, num_moments> landed{};
  int failed = 0;
  for (int i = 0; i < runs; ++i) {
    const Milliseconds delay = std::uniform_real_distribution<>(0, 1)(random) * length;
    const bool all = i % 2 == 0;
    const auto victim = static_cast<int>(random() % ranks);
    SCOPED_TRACE("run " + std::to_string(i) + ", killed after " + std::to_string(delay.count()) +
                 " ms: " + (all ? "all" : "rank " + std::to_string(victim)));
    const Job job("fault.kill.run" + std::to_string(i), save_every_step(num_steps));
    const Outcome killed =
        run_and_kill(job, delay, all ? std::nullopt : std::optional<int>(victim));
    ++landed[moment_of(job, killed)][all ? 0 : 1];
    const bool had_failure = testing::Test::HasFailure();
    whole.expect_good_restart(job, killed.out);
    EXPECT_TRUE(job.exported() == weights);
    if (testing::Test::HasFailure() && !had_failure) std::printf("first failure: run %d\n", i);
    // What went wrong stays to be looked at.
    if (testing::Test::HasFailure()) {
      if (++failed == 3) break;
    } else {
      fs::remove_all(job.folder());
    }
  }

  std::printf("%d runs, seed %d; killed:      all ranks and mpirun   one rank\n", runs, seed);
  for (int m = 0; m < num_moments; ++m)
    std::printf("  %-32s %13d %13d\n", moment_names[m], landed[m][0], landed[m][1]);
}

}  // namespace
}  // namespace finetune::tests::kill_test
