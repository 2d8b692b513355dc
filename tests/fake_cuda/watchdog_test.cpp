// SPDX-License-Identifier: Apache-2.0
// Ranks that do not come to a collective of their GPUs: somebody says who, and the job ends.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::fake_watchdog_test {
namespace {

constexpr int exit_environment = 69;
constexpr int exit_io = 74;

std::string host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

Outcome run(const std::string& how, int rank) {
  return run_program(
      {source_folder() / "tests/support/mpirun.sh", "3",
       build_folder() / "tests/test_fake_cuda_late_collective", how, std::to_string(rank)},
      build_folder());
}

void expect_named(const std::string& how, int rank, const std::string& collective) {
  const Outcome outcome = run(how, rank);
  EXPECT_TRUE(outcome.ended_with(exit_io)) << outcome.exit_code << "\n" << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: step 7: rank " + std::to_string(rank) + " on " + host() +
                                   " is late in " + collective + " on fsdp: "),
            1)
      << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.text();
}

TEST(WatchdogOfGpus, NamesARankThatDoesNotStartItsCollective) {
  expect_named("busy", 1, "reduce_scatter");
  expect_named("busy", 0, "reduce_scatter");
  expect_named("together", 2, "gather with reduce");
}

TEST(WatchdogOfGpus, NamesARankThatStillComputes) {
  expect_named("computing", 1, "reduce_scatter");
}

TEST(WatchdogOfGpus, SaysSoIfNobodyIsLate) {
  const Outcome outcome = run("hanging", -1);
  EXPECT_TRUE(outcome.ended_with(exit_io)) << outcome.exit_code << "\n" << outcome.text();
  EXPECT_EQ(count(outcome.err, "step 7: reduce_scatter on fsdp does not finish, though no rank"), 1)
      << outcome.text();
}

TEST(WatchdogOfGpus, IsNotNeededWhereNcclLosesARank) {
  const Outcome outcome = run("losing", 1);
  EXPECT_TRUE(outcome.ended_with(exit_environment)) << outcome.exit_code << "\n" << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: rank 1 on " + host() + ": "), 1) << outcome.text();
  EXPECT_EQ(count(outcome.err, "another rank was lost, says the fake"), 1) << outcome.text();
}

}  // namespace
}  // namespace finetune::tests::fake_watchdog_test
