// SPDX-License-Identifier: Apache-2.0
// Training runs of which one rank is stopped, killed or slow.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
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

 private:
  fs::path output_;
  Process process_;
  std::map<int, pid_t> pids_;
};

class StoppedRank : public testing::TestWithParam<int> {};

TEST_P(StoppedRank, IsNamedAndTheJobEnds) {
  LongRun run("stopped.r" + std::to_string(GetParam()), "5");
  EXPECT_TRUE(run.send(GetParam(), SIGSTOP));
  const Outcome outcome = run.process().wait(run_limit);
  EXPECT_TRUE(outcome.ended_with(exit_io)) << outcome.exit_code << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: step "), 1) << outcome.text();
  EXPECT_EQ(
      count(outcome.err, "rank " + std::to_string(GetParam()) + " on " + host() + " is late in "),
      1)
      << outcome.text();
}

INSTANTIATE_TEST_SUITE_P(Ranks, StoppedRank, testing::Values(0, 1));

TEST(KilledRank, EndsTheJob) {
  LongRun run("killed", "600");
  EXPECT_TRUE(run.send(1, SIGKILL));
  const Outcome outcome = run.process().wait(run_limit);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_NE(outcome.exit_code, 0) << outcome.text();
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
