// SPDX-License-Identifier: Apache-2.0
// Training runs of which one rank is stopped, killed or slow.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <thread>

#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::hang_test {
namespace {

namespace fs = std::filesystem;

constexpr int exit_io = 74;
constexpr int ranks = 3;

std::string host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Process ids of the ranks that write to `output`, by rank.
std::map<int, pid_t> ranks_of(const fs::path& output) {
  std::map<int, pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (std::isdigit(static_cast<unsigned char>(pid.front())) == 0) continue;
    if (read(entry.path() / "cmdline").find("train.output=" + output.string()) == std::string::npos)
      continue;
    const std::string environment = read(entry.path() / "environ");
    const std::string key = std::string("\0OMPI_COMM_WORLD_RANK=", 22);
    const auto at = environment.find(key);
    if (at != std::string::npos)
      found[std::stoi(environment.substr(at + key.size()))] = std::stoi(pid);
  }
  return found;
}

/// A long run of the smoke deck on three ranks, which is under way when this is constructed.
class LongRun {
 public:
  LongRun(const std::string& name, const std::string& hang_timeout_s,
          const std::string& max_steps = "1000000")
      : output_(empty_folder("hang/" + name) / "output"),
        process_(
            finetune_on(ranks, {"inputs/smoke/pretraining.toml", "train.max_steps=" + max_steps,
                                // Of which nothing is warned: every rank has its share.
                                "train.global_batch=48", "train.hang_timeout_s=" + hang_timeout_s,
                                "train.output=" + output_.string()}),
            source_folder()) {
    while (read(output_ / "metrics.jsonl").find("\"loss\"") == std::string::npos) {
      if (!process_.read_for(10)) break;
    }
    pids_ = ranks_of(output_);
  }

  bool send(int rank, int signal) const {
    const auto found = pids_.find(rank);
    return found != pids_.end() && ::kill(found->second, signal) == 0;
  }
  Process& process() { return process_; }
  const fs::path& output() const { return output_; }

 private:
  fs::path output_;
  Process process_;
  std::map<int, pid_t> pids_;
};

/// What finetune trace hang says of a run.
std::string trace(const fs::path& folder) {
  const Outcome outcome =
      run_program({build_folder() / "finetune", "trace", "hang", folder.string()}, source_folder());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  return outcome.out;
}

class StoppedRank : public testing::TestWithParam<int> {};

TEST_P(StoppedRank, IsNamedAndTheJobEnds) {
  LongRun run("stopped.r" + std::to_string(GetParam()), "5");
  EXPECT_TRUE(run.send(GetParam(), SIGSTOP));
  // Launchers wake a rank before they end it: then it must not say that it was there all the time.
  const int judge = GetParam() == 0 ? ranks - 1 : 0;
  const fs::path told_first =
      run.output() / ("flight/rank-0000" + std::to_string(judge) + ".jsonl");
  while (!fs::exists(told_first) && run.process().read_for(1)) {
  }
  run.send(GetParam(), SIGCONT);
  const Outcome outcome = run.process().wait(run_limit);
  EXPECT_TRUE(outcome.ended_with(exit_io)) << outcome.exit_code << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: step "), 1) << outcome.text();
  EXPECT_EQ(
      count(outcome.err, "rank " + std::to_string(GetParam()) + " on " + host() + " is late in "),
      1)
      << outcome.text();
  // What all did last is written down: by the stopped rank nothing, and it is named.
  EXPECT_EQ(count(outcome.err, "finetune trace hang " + run.output().string()), 1);
  const std::string told = trace(run.output());
  EXPECT_EQ(std::ranges::count(told, '\n'), 2) << told;
  const std::string rank = "rank " + std::to_string(GetParam()) + " on " + host();
  EXPECT_TRUE(std::regex_search(told, std::regex("^step [0-9]+: " + rank + " is late in ")))
      << told;
  EXPECT_EQ(count(told, "no answer for "), 1) << told;
  EXPECT_TRUE(std::regex_search(told, std::regex("\nrank [0-2] on .+ has been inside it for ")))
      << told;
}

INSTANTIATE_TEST_SUITE_P(Ranks, StoppedRank, testing::Values(0, 1));

/// Has all ranks write their records, and returns whether the run still goes on then.
bool ask_for_records(LongRun& run) {
  fs::remove_all(run.output() / "flight");
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_TRUE(run.send(rank, SIGUSR2));
  const auto is_written = [&](int rank) {
    return fs::exists(run.output() / "flight" / ("rank-0000" + std::to_string(rank) + ".jsonl"));
  };
  bool is_running = true;
  while (is_running && !(is_written(0) && is_written(1) && is_written(2)))
    is_running = run.process().read_for(10);
  return is_running;
}

TEST(FlightRecords, AreWrittenOnASignalAndTheRunGoesOn) {
  LongRun run("signal", "600");
  const std::string none = "no rank had waited for longer than 1 s when this was written (SIGUSR2)";
  std::string told;
  // On a busy machine one may just have waited so long, but not time and again.
  for (int i = 0; i < 10 && told.find(none) == std::string::npos; ++i) {
    ASSERT_TRUE(ask_for_records(run)) << "SIGUSR2 ends nothing";
    told = trace(run.output() / "flight");
  }
  EXPECT_EQ(std::ranges::count(told, '\n'), 2) << told;
  EXPECT_EQ(count(told, none), 1) << told;
  EXPECT_TRUE(std::regex_search(told, std::regex("\nrank 0 on .+ was in step [0-9]+"))) << told;
  const std::string record = read(run.output() / "flight/rank-00001.jsonl");
  EXPECT_GT(std::ranges::count(record, '\n'), 50) << "one line for each of the last collectives";
  EXPECT_NE(record.find("\"subject\": \"layers."), std::string::npos) << record;
  run.send(0, SIGTERM);
  EXPECT_FALSE(run.process().wait(run_limit).timed_out);
}

TEST(KilledRank, EndsTheJob) {
  LongRun run("killed", "600");
  EXPECT_TRUE(run.send(1, SIGKILL));
  const Outcome outcome = run.process().wait(run_limit);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_NE(outcome.exit_code, 0) << outcome.text();
}

/// A disk that stands still in set-up is no slow rank.
TEST(SlowFiles, AreNamedBeforeTheFirstStep) {
  const fs::path output = empty_folder("hang/files") / "output";
  const auto words = [&](const std::string& more) {
    return finetune_on(2, {"inputs/smoke/pretraining.toml", "train.max_steps=4",
                           "train.stop_after_steps=1", more, "train.output=" + output.string()});
  };
  const Outcome begun = run_program(words("train.hang_timeout_s=0"), source_folder());
  ASSERT_EQ(begun.exit_code, 75) << begun.text();
  std::vector<std::string> slow = {"env", "FINETUNE_FAULT=load.read:1:1:slow=120000"};
  const auto again = words("train.hang_timeout_s=2");
  slow.insert(slow.end(), again.begin(), again.end());
  const Outcome outcome = run_program(slow, source_folder());
  EXPECT_EQ(outcome.exit_code, exit_io) << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: before the first step: rank 1 on " + host() +
                                   " is busy with files: reading of the checkpoint for "),
            1)
      << outcome.text();
}

TEST(SlowRank, IsWaitedFor) {
  // Its pauses are far below the timeout, which a busy machine must not reach by itself either.
  LongRun run("slow", "20", "200");
  bool is_running = true;
  for (int i = 0; i < 20 && is_running; ++i) {
    run.send(1, SIGSTOP);
    is_running = run.process().read_for(0);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    run.send(1, SIGCONT);
    is_running = run.process().read_for(100) && is_running;
  }
  const Outcome outcome = run.process().wait(run_limit);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(outcome.err, "");
}

}  // namespace
}  // namespace finetune::tests::hang_test
