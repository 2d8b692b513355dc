// SPDX-License-Identifier: Apache-2.0
// A process that saves without pause is killed at random moments. Whatever it left, every published
// checkpoint is whole, and the newest one is at least the last that the process saw finished.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "checkpoint/find.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/retire.hpp"
#include "checkpoint/verify.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint {
namespace {

// Large enough that a good part of a save is writing.
const std::vector<tests::TestTensor> model = {{"param", "w", {40000}, core::DType::f32},
                                              {"exp_avg", "w", {40000}, core::DType::f32}};

/// Saves `first`, `first` + 1, ... and reports each step through `pipe` when it is finished.
[[noreturn]] void save_for_ever(const std::filesystem::path& root, std::int64_t first, int pipe) {
  for (std::int64_t step = first;; ++step) {
    tests::save_model({}, root, step, model);
    if (::write(pipe, &step, sizeof(step)) != sizeof(step)) ::_exit(1);
    retire({}, root, 2, step);
  }
}

/// Lets a process save until `delay_ms` after its first report; returns the last step it reported.
std::int64_t run_and_kill(const std::filesystem::path& root, std::int64_t first, int delay_ms) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) save_for_ever(root, first, ends[1]);
  ::close(ends[1]);
  std::int64_t last = -1;
  EXPECT_EQ(::read(ends[0], &last, sizeof(last)), ssize_t{sizeof(last)});
  ::poll(nullptr, 0, delay_ms);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (std::int64_t step; ::read(ends[0], &step, sizeof(step)) == ssize_t{sizeof(step)};)
    last = step;
  ::close(ends[0]);
  return last;
}

TEST(Kill, NothingHalfWrittenIsEverTaken) {
  const tests::SharedFolder folder;
  std::mt19937 random(30);
  std::int64_t step = 1;
  int interrupted = 0;
  for (int round = 0; round < 30; ++round) {
    const std::int64_t last = run_and_kill(folder.path(), step, static_cast<int>(random() % 25));
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      interrupted += entry.path().filename().string().starts_with(".");

    EXPECT_EQ(verify(folder.path()).problems, std::vector<std::string>());
    tests::Shard shard = tests::cut(model, 0, 1);
    const auto found = find_and_load({}, folder.path(), "auto", shard.wanted());
    ASSERT_TRUE(found.has_value());
    EXPECT_GE(found->step, last);
    EXPECT_LE(found->step, last + 1);
    EXPECT_EQ(tests::wrong_bytes(model, shard, found->step), 0);
    step = found->step + 1;
  }
  // Otherwise no kill hit a save and the test proved nothing.
  EXPECT_GE(interrupted, 5);
}

}  // namespace
}  // namespace finetune::checkpoint
