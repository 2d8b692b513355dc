// SPDX-License-Identifier: Apache-2.0
// Ranks that do not come to a collective, in every way there is: the watchdog names them and ends
// the job.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::watchdog_test {
namespace {

constexpr int exit_io = 74;

std::string host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

Outcome run(int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {source_folder() / "tests/support/mpirun.sh",
                                    std::to_string(ranks),
                                    build_folder() / "tests/test_parallel_late_rank"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_program(words, build_folder());
}

std::string late(const std::string& rank) {
  return "error: step 5: rank " + rank + " on " + host() + " is late in all_reduce on fsdp: ";
}

void expect_ended(const Outcome& outcome) {
  EXPECT_TRUE(outcome.ended_with(exit_io)) << outcome.exit_code << "\n" << outcome.text();
}

void expect_named(const Outcome& outcome, const std::string& rank, const std::string& doing) {
  expect_ended(outcome);
  EXPECT_EQ(count(outcome.err, late(rank) + doing), 1) << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.text();
}

TEST(Watchdog, NamesARankThatIsStopped) {
  expect_named(run(3, {"stop", "2", "1"}), "1", "no answer for ");
}

TEST(Watchdog, NamesTheFirstRankThoughItJudges) {
  expect_named(run(3, {"stop", "2", "0"}), "0", "no answer for ");
  expect_named(run(3, {"loop", "2", "0"}), "0", "busy for ");
}

TEST(Watchdog, NamesTheLastRankThoughItIsTheDeputy) {
  expect_named(run(2, {"stop", "2", "1"}), "1", "no answer for ");
}

TEST(Watchdog, NamesARankThatSleepsOrLoopsForEver) {
  expect_named(run(3, {"sleep", "2", "1"}), "1", "busy for ");
  expect_named(run(3, {"loop", "2", "2"}), "2", "busy for ");
}

TEST(Watchdog, NamesAllRanksThatAreLate) {
  const Outcome outcome = run(4, {"sleep", "2", "1", "3"});
  expect_ended(outcome);
  EXPECT_EQ(count(outcome.err, "2 ranks are late in all_reduce on fsdp: rank 1 on "), 1)
      << outcome.text();
  EXPECT_EQ(count(outcome.err, "; rank 3 on "), 1) << outcome.text();
}

TEST(Watchdog, EndsTheJobEvenIfBothRanksThatJudgeAreStopped) {
  const Outcome outcome = run(3, {"stop", "1", "0", "2"});
  expect_ended(outcome);
  EXPECT_EQ(count(outcome.err, "rank 1 on " + host() + " waits in all_reduce on fsdp"), 1)
      << outcome.text();
}

TEST(Watchdog, LeavesRanksAloneThatAreBusyWhileNobodyWaits) {
  const Outcome outcome = run(3, {"busy", "6"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(outcome.err, "");
}

TEST(Watchdog, NeedNotSpeakForARankThatDies) {
  const Outcome outcome = run(3, {"die", "600", "1"});
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_NE(outcome.exit_code, 0) << outcome.text();
}

TEST(Watchdog, OfZeroSecondsWaits) {
  const Outcome outcome = run(2, {"busy", "0"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
}

}  // namespace
}  // namespace finetune::tests::watchdog_test
