// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/launcher.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

extern char** environ;

namespace finetune::comm::launcher_test {
namespace {

namespace fs = std::filesystem;

/// A process that does nothing, under the name of another program.
class Idle {
 public:
  explicit Idle(const std::string& name) {
    fs::create_directories(folder_);
    const fs::path program = folder_ / name;
    fs::copy_file("/bin/sleep", program, fs::copy_options::overwrite_existing);
    std::string word = name, seconds = "600";
    char* argv[] = {word.data(), seconds.data(), nullptr};
    // Returns once the program is loaded, so that it has its name.
    if (::posix_spawn(&pid_, program.c_str(), nullptr, nullptr, argv, environ) != 0) pid_ = 0;
  }
  ~Idle() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    fs::remove_all(folder_);
  }

  pid_t pid() const { return pid_; }
  /// The signal that ended it.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  const fs::path folder_ =
      fs::temp_directory_path() / ("launcher_test_" + std::to_string(::getpid()));
  pid_t pid_ = 0;
};

TEST(Launcher, ThatDoesNotEndIsEnded) {
  Idle mpirun("mpirun");
  ASSERT_GT(mpirun.pid(), 0);
  EXPECT_TRUE(end_if_stuck(mpirun.pid(), 1));
  EXPECT_EQ(mpirun.wait(), SIGKILL);
}

TEST(Launcher, OfAnotherKindIsLeftAlone) {
  const Idle slurm("slurmstepd");
  ASSERT_GT(slurm.pid(), 0);
  EXPECT_FALSE(end_if_stuck(slurm.pid(), 0));
  EXPECT_FALSE(end_if_stuck(1, 0)) << "nor is the first process";
}

}  // namespace
}  // namespace finetune::comm::launcher_test
