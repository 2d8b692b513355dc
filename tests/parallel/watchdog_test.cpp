// SPDX-License-Identifier: Apache-2.0
// Ranks that do not come to a collective, in every way there is: the watchdog names them and ends
// the job.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::watchdog_test {
namespace {

namespace fs = std::filesystem;

constexpr int exit_io = 74;

std::string host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::vector<std::string> command(int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {source_folder() / "tests/support/mpirun.sh",
                                    std::to_string(ranks),
                                    build_folder() / "tests/test_parallel_late_rank"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

Outcome run(int ranks, const std::vector<std::string>& arguments) {
  return run_program(command(ranks, arguments), build_folder());
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

TEST(Watchdog, OfAPartOfTheJobNamesItsRanksAsThePartCountsThem) {
  expect_named(run(4, {"part:sleep", "2", "1"}), "1", "busy for ");
  expect_named(run(4, {"part:stop", "2", "0"}), "0", "no answer for ");
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

/// Where the last rank that judges would speak meanwhile, were it not told.
TEST(Watchdog, SpeaksOnceThoughItIsHeldUpBeforeItEndsTheJob) {
  std::vector<std::string> words = command(3, {"sleep", "2", "1"});
  words.insert(words.begin(), {"env", "FINETUNE_FAULT=watchdog.end:0:*:slow=4000"});
  expect_named(run_program(words, build_folder()), "1", "busy for ");
}

TEST(Watchdog, NamesNobodyAfterTheMachineStoodStill) {
  constexpr int ranks = 3;
  const fs::path folder = empty_folder("watchdog/still");
  Process process(command(ranks, {"still", "3", "1"}), folder);
  std::vector<pid_t> pids;
  while (std::ssize(pids) < ranks) {
    const fs::path file = folder / ("rank." + std::to_string(pids.size()));
    if (pid_t pid = 0; std::ifstream(file) >> pid)
      pids.push_back(pid);
    else
      ASSERT_TRUE(process.read_for(5)) << "it ended before all ranks were there";
  }
  for (const pid_t pid : pids)
    ::kill(pid, SIGSTOP);
  // Those that wait have waited for longer than the timeout then, and nobody has been heard of.
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(4500);
  while (std::chrono::steady_clock::now() < end)
    process.read_for(50);
  for (const pid_t pid : pids)
    ::kill(pid, SIGCONT);
  const Outcome outcome = process.wait(run_limit);
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
