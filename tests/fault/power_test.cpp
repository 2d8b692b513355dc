// SPDX-License-Identifier: Apache-2.0
// A machine that loses its power keeps what was synced, and no more. A checkpoint that was reported
// as saved is there afterwards; where fsync does nothing, this test sees that it is not.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <random>

#include "fault/harness.hpp"
#include "fault/power_loss.hpp"

namespace finetune::tests::power_test {
namespace {

namespace fs = std::filesystem;

constexpr int ranks = 2;
constexpr int num_steps = 8;

fs::path log_of(const Job& job) {
  return job.folder() / "disk.log";
}

/// Runs `job` until its step `step` and up to 0.3 s longer, cuts the power, and leaves what a disk
/// would hold. Returns what the run printed before.
Outcome run_and_lose_power(const Job& job, const Environment& more, int step,
                           std::mt19937_64& random) {
  Environment environment = {"FINETUNE_SHIM_LOG=" + log_of(job).string(),
                             "FINETUNE_SHIM_SLOW_MS=1"};
  environment.insert(environment.end(), more.begin(), more.end());
  Process process(command(job, ranks, with_shim(job, environment)), job.folder());
  const auto delay = std::chrono::milliseconds(random() % 300);
  if (wait_for_step(process, job, step)) {
    const auto end = std::chrono::steady_clock::now() + delay;
    while (std::chrono::steady_clock::now() < end && process.read_for(1)) {
    }
  }
  process.kill();
  Outcome outcome = process.wait(run_limit);
  EXPECT_TRUE(all_ranks_are_gone(job));
  const PowerLoss loss = lose_power(job.output(), log_of(job), random);
  std::printf("killed in step %ld, saved %ld: %d files cut, %d entries undone\n",
              static_cast<long>(last_step(job)) + 1,
              static_cast<long>(last_saved(outcome.out).value_or(0)), loss.files_cut,
              loss.entries_undone);
  return outcome;
}

class LostPower : public testing::Test {
 protected:
  std::mt19937_64 random_{
      static_cast<std::uint64_t>(count_from_environment("FINETUNE_POWER_SEED", 1))};
};

TEST_F(LostPower, KeepsWhatWasReportedAsSaved) {
  const int runs = count_from_environment("FINETUNE_POWER_RUNS", 4);
  const WholeRun whole("fault.power.whole", ranks, num_steps);
  for (int i = 0; i < runs && !HasFailure(); ++i) {
    SCOPED_TRACE("run " + std::to_string(i));
    const Job job("fault.power.run" + std::to_string(i), save_every_step(num_steps));
    const int step = 1 + static_cast<int>(random_() % (num_steps - 1));
    const Outcome killed = run_and_lose_power(job, {}, step, random_);
    whole.expect_good_restart(job, killed.out);
    if (!HasFailure()) fs::remove_all(job.folder());
  }
}

// The control: without fsync the same disk holds nothing that can be trusted.
TEST_F(LostPower, IsSeenToLoseCheckpointsThatWereNotSynced) {
  const int runs = count_from_environment("FINETUNE_POWER_CONTROLS", 2);
  int lost = 0;
  for (int i = 0; i < runs; ++i) {
    const Job job("fault.power.control" + std::to_string(i), save_every_step(num_steps));
    const Outcome killed = run_and_lose_power(job, {"FINETUNE_SHIM_NO_FSYNC=1"}, 3, random_);
    ASSERT_TRUE(last_saved(killed.out)) << killed.text();
    const fs::path newest = step_folder(job, *last_saved(killed.out));
    lost += static_cast<int>(!fs::exists(newest) ||
                             verify(job, newest.string()).exit_code != exits::done);
  }
  EXPECT_GE(lost, (9 * runs + 9) / 10);
}

}  // namespace
}  // namespace finetune::tests::power_test
