// SPDX-License-Identifier: Apache-2.0
// A process that saves without pause is killed in the middle of saves, publications and removals.
// Whatever it left, every published checkpoint is whole, and the newest one is at least the last
// that the process saw finished.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/retire.hpp"
#include "checkpoint/load/find.hpp"
#include "checkpoint/load/load.hpp"
#include "checkpoint/verify/verify.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::kill_test {
namespace {

namespace fs = std::filesystem;

// A file of some pages, and a manifest of a thousand checksums.
const std::vector<tests::TestTensor> model = {{"param", "w", {8000}, core::DType::f32},
                                              {"exp_avg", "w", {8000}, core::DType::f32}};

/// A child process that saves `first`, `first` + 1, ... until it is killed.
class Saver {
 public:
  Saver(const fs::path& root, std::int64_t first) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) save_for_ever(root, first, ends[1]);
    ::close(ends[1]);
    reports_ = ends[0];
    ::fcntl(reports_, F_SETFL, O_NONBLOCK);
  }
  ~Saver() { ::close(reports_); }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Takes its reports. False if it ended by itself.
  bool listen() {
    std::int64_t step = -1;
    ssize_t size = 0;
    for (; (size = ::read(reports_, &step, sizeof(step))) == ssize_t{sizeof(step)}; ++num_finished_)
      last_finished_ = step;
    return size != 0;
  }
  int num_finished() const { return num_finished_; }
  /// The last step that was reported as finished; -1 if none.
  std::int64_t last_finished() const { return last_finished_; }

  void kill() const {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  // noexcept: the child must not get back into the tests.
  [[noreturn]] static void save_for_ever(const fs::path& root, std::int64_t first,
                                         int reports) noexcept {
    for (std::int64_t step = first;; ++step) {
      tests::save_model({}, root, step, model);
      if (::write(reports, &step, sizeof(step)) != sizeof(step)) ::_exit(1);
      retire(root, {.newest = 2}, step);
    }
  }

  pid_t pid_ = -1;
  int reports_ = -1;
  int num_finished_ = 0;
  std::int64_t last_finished_ = -1;
};

/// How the checkpoint folder shows what the process is doing: a folder that was not there before,
/// and what is in it.
struct Sign {
  std::string prefix;
  std::string file;
};

const std::array signs = {
    Sign{std::string(temporary_prefix), "."},
    Sign{std::string(temporary_prefix), file_name(Files::node, 0)},
    Sign{std::string(temporary_prefix), std::string(state_name)},
    Sign{std::string(temporary_prefix), ".MANIFEST.tmp"},
    Sign{std::string(temporary_prefix), std::string(manifest_name)},
    Sign{"step-", "."},
    Sign{std::string(deleted_prefix), "."},
};

std::set<std::string> names_in(const fs::path& root) {
  std::set<std::string> names;
  std::error_code error;  // of folders that go while they are listed
  for (auto entry = fs::directory_iterator(root, error);
       !error && entry != fs::directory_iterator(); entry.increment(error))
    names.insert(entry->path().filename());
  return names;
}

bool shows(const fs::path& root, const Sign& sign, const std::set<std::string>& old) {
  for (const std::string& name : names_in(root)) {
    std::error_code ignored;
    if (name.starts_with(sign.prefix) && !old.contains(name) &&
        fs::exists(root / name / sign.file, ignored))
      return true;
  }
  return false;
}

/// Waits for `num_saves` finished saves, then for `sign`, then kills after `num_looks` more looks
/// into the folder. These are events: how long a save takes does not matter.
void kill_at(Saver& saver, const fs::path& root, int num_saves, const Sign& sign, int num_looks) {
  // A sign can pass unseen, but not for ever.
  constexpr int most_saves = 300;
  while (saver.listen() && saver.num_finished() < num_saves)
    ::sched_yield();
  const std::set<std::string> old = names_in(root);
  while (!shows(root, sign, old) && saver.listen() && saver.num_finished() < most_saves)
    ::sched_yield();
  for (int i = 0; i < num_looks; ++i)
    names_in(root);
  saver.kill();
  saver.listen();
}

bool has_leftovers(const fs::path& root) {
  return std::ranges::any_of(names_in(root), [](const auto& name) { return name[0] == '.'; });
}

/// Step of the checkpoint that a restart would take, found to be one of `first` to `last` and
/// whole.
std::int64_t expect_good(const fs::path& root, std::int64_t first, std::int64_t last) {
  EXPECT_EQ(verify(root).problems, std::vector<std::string>());
  tests::Shard shard = tests::cut(model, 0, 1);
  const auto found = find_and_load({}, {root, "auto"}, [&] { return shard.wanted(); });
  if (!found) {
    ADD_FAILURE() << "no checkpoint is found";
    return -1;
  }
  EXPECT_GE(found->step, first);
  EXPECT_LE(found->step, last);
  EXPECT_EQ(tests::wrong_bytes(model, shard, found->step), 0);
  return found->step;
}

TEST(Kill, NothingHalfWrittenIsEverTaken) {
  constexpr int num_rounds = 2 * static_cast<int>(signs.size());
  constexpr int enough = num_rounds / 2;
  const tests::SharedFolder folder;
  const fs::path& root = folder.path();
  std::mt19937 random(30);
  std::int64_t step = 1;
  tests::save_model({}, root, step, model);
  int interrupted = 0;
  // On a busy machine a kill may come late: then some more.
  for (int round = 0; round < num_rounds || (interrupted < enough && round < 4 * num_rounds);
       ++round) {
    // Every second process begins with the step that is there, and puts its own in the place of it.
    Saver saver(root, step + round % 2);
    kill_at(saver, root, static_cast<int>(random() % 2), signs[round % signs.size()],
            static_cast<int>(random() % 8));
    // What earlier processes left was removed by the first save of this one.
    interrupted += has_leftovers(root);
    const std::int64_t finished = std::max(step, saver.last_finished());
    step = expect_good(root, finished, finished + 1);
    if (HasFailure()) return;
  }
  // Otherwise too few kills hit a save and the test proved nothing.
  EXPECT_GE(interrupted, enough);
}

}  // namespace
}  // namespace finetune::checkpoint::kill_test
