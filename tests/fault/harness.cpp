// SPDX-License-Identifier: Apache-2.0
#include "fault/harness.hpp"
#include "support/folders.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

namespace finetune::tests {
namespace {

namespace fs = std::filesystem;

const fs::path program = build_folder() / "finetune";
constexpr std::string_view step_prefix = "step-";

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The number after the last `words` in `text`.
std::optional<std::int64_t> number_after(const std::string& text, const std::string& words) {
  const auto at = text.rfind(words);
  if (at == std::string::npos) return std::nullopt;
  return std::stoll(text.substr(at + words.size()));
}

int rank_of(const fs::path& process) {
  const std::string environment = read_all(process / "environ");
  const std::string key("\0OMPI_COMM_WORLD_RANK=", 22);
  const auto at = environment.find(key);
  return at == std::string::npos ? 0 : std::stoi(environment.substr(at + key.size()));
}

}  // namespace

std::vector<std::string> command(const Job& job, int ranks, const Environment& environment,
                                 const std::vector<std::string>& more) {
  std::vector<std::string> words = job.command(ranks, more);
  // Two threads of one rank that wait for each other take long on a busy machine.
  std::vector<std::string> setting = {"env", "OMP_NUM_THREADS=1"};
  setting.insert(setting.end(), environment.begin(), environment.end());
  words.insert(std::ranges::find(words, program.string()), setting.begin(), setting.end());
  return words;
}

Outcome run(const Job& job, int ranks, const Environment& environment,
            const std::vector<std::string>& more) {
  return run_program(command(job, ranks, environment, more), job.folder());
}

Environment with_shim(const Job& job, const Environment& more) {
  Environment all = {"LD_PRELOAD=" + (build_folder() / "tests/libtest_fault_shim.so").string(),
                     "FINETUNE_SHIM_FOLDER=" + job.output().string()};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<std::string> save_every_step(int max_steps) {
  return {"train.max_steps=" + std::to_string(max_steps),
          "train.global_batch=4",
          "train.micro_batch=2",
          "optimizer.lr=1e-3",
          "optimizer.weight_decay=0.1",
          "optimizer.max_grad_norm=0.5",
          "checkpoint.save_steps=1",
          "checkpoint.save_total_limit=3"};
}

std::map<int, pid_t> ranks_of(const Job& job) {
  std::map<int, pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (std::isdigit(static_cast<unsigned char>(pid.front())) == 0) continue;
    std::error_code error;
    if (fs::read_symlink(entry.path() / "exe", error) != program || error) continue;
    if (fs::read_symlink(entry.path() / "cwd", error) != job.folder() || error) continue;
    found[rank_of(entry.path())] = std::stoi(pid);
  }
  return found;
}

bool all_ranks_are_gone(const Job& job) {
  const auto end = std::chrono::steady_clock::now() + run_limit;
  while (!ranks_of(job).empty()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool wait_for_step(Process& process, const Job& job, int step) {
  while (last_step(job) < step) {
    if (!process.read_for(2)) return last_step(job) >= step;
  }
  return true;
}

std::int64_t last_step(const Job& job) {
  const std::string text = read_all(job.output() / "metrics.jsonl");
  // Saves, starts and validations have rows of their own.
  const auto loss = text.substr(0, text.rfind('\n') + 1).rfind(", \"loss\": ");
  return loss == std::string::npos ? 0
                                   : number_after(text.substr(0, loss), "{\"step\": ").value_or(0);
}

fs::path step_folder(const Job& job, std::int64_t step) {
  const std::string digits = std::to_string(step);
  return job.output() / (std::string(step_prefix) + std::string(10 - digits.size(), '0') + digits);
}

std::vector<std::int64_t> steps_on_disk(const Job& job) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(job.output(), error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(step_prefix)) steps.push_back(std::stoll(name.substr(5)));
  }
  std::ranges::sort(steps);
  return steps;
}

std::vector<std::string> leftovers(const Job& job) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(job.output(), error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(".tmp-") || name.starts_with(".del-")) names.push_back(name);
  }
  return names;
}

std::optional<std::int64_t> last_saved(const std::string& log) {
  return number_after(log, "saved output/step-");
}

std::optional<std::int64_t> resumed_from(const std::string& log) {
  return number_after(log, "continues from output/step-");
}

Outcome verify(const Job& job, const std::string& folder) {
  return run_program(finetune_on(1, {"verify", folder}), job.folder());
}

std::string tensors_of(const Job& job, std::int64_t step) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(step_folder(job, step), error)) {
    if (entry.path().extension() == ".h5") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::string bytes;
  for (const fs::path& path : paths)
    bytes += read_all(path);
  return bytes;
}

WholeRun::WholeRun(const std::string& name, int ranks, int num_steps)
    : ranks_(ranks), num_steps_(num_steps), job_(name, save_every_step(num_steps)) {
  const Outcome outcome = run(job_, ranks);
  EXPECT_EQ(outcome.exit_code, exits::done) << outcome.text();
  tensors_ = tensors_of(job_, num_steps);
  EXPECT_FALSE(tensors_.empty());
}

Outcome WholeRun::expect_good_restart(const Job& job, const std::string& log, int most_lost) const {
  const auto steps = steps_on_disk(job);
  if (!steps.empty()) {
    const Outcome verified = verify(job);
    EXPECT_EQ(verified.exit_code, exits::done) << verified.text();
  }
  const std::int64_t reached = last_step(job);
  Outcome outcome = run(job, ranks_);
  EXPECT_EQ(outcome.exit_code, exits::done) << outcome.text();
  const std::int64_t resumed = resumed_from(outcome.out).value_or(0);
  EXPECT_EQ(resumed, steps.empty() ? 0 : steps.back()) << outcome.text();
  EXPECT_GE(resumed, last_saved(log).value_or(0)) << log;
  EXPECT_GE(resumed, reached - most_lost) << log;
  expect_same_end(job);
  return outcome;
}

void WholeRun::expect_same_end(const Job& job) const {
  EXPECT_EQ(leftovers(job), std::vector<std::string>());
  EXPECT_EQ(steps_on_disk(job), steps_on_disk(job_));
  expect_same_metrics(job, job_);
  EXPECT_TRUE(tensors_of(job, num_steps_) == tensors_) << "the last weights differ";
}

int count_from_environment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

}  // namespace finetune::tests
