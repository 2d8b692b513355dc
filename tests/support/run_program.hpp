#pragma once
// SPDX-License-Identifier: Apache-2.0
// Starts programs as a user would and sees what they print, how they end, and whether they end.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace finetune::tests {

/// Longer than any run of a test takes on a busy machine.
inline constexpr std::chrono::seconds run_limit{300};

/// How a program ended.
struct Outcome {
  int exit_code = -1;           ///< 128 + signal if a signal ended it
  bool timed_out = false;       ///< it did not end by itself and was killed
  std::int64_t peak_bytes = 0;  ///< resident memory of the program or of the largest it waited for
  std::string out;
  std::string err;

  std::string text() const { return out + err; }

  /// Whether a job of several ranks that ended itself did so with `code`. A rank that was stopped
  /// is woken to be killed while Open MPI's mpirun is already leaving: either may crash over it,
  /// and mpirun may stop for ever, until it is killed (comm/launcher.hpp). Then its code is lost,
  /// which only its messages bear out.
  bool ended_with(int code) const;
};

/// A running program. Whatever it started in turn is killed with it.
class Process {
 public:
  /// Starts words[0] with the arguments words[1] ... in `folder`. It lives for `life` at most.
  Process(const std::vector<std::string>& words, const std::filesystem::path& folder,
          std::chrono::seconds life = 2 * run_limit);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Reads its output until it ends, for `limit` at most.
  Outcome wait(std::chrono::seconds limit);

  /// Reads what there is to read within `ms`. False when both streams are closed. Kills a program
  /// at the end of its life, so that nobody waits for ever for what it should do.
  bool read_for(int ms);

  /// What it printed, as far as it was read.
  const std::string& out() const { return text_[0]; }

  /// SIGKILL for the program and everything that it started, as a node that loses its power.
  /// Returns when all of them have ended.
  void kill();

 private:
  pid_t pid_ = -1;
  int streams_[2] = {-1, -1};  ///< stdout, stderr
  std::string text_[2];
  std::chrono::steady_clock::time_point end_;  ///< of its life
  bool is_overdue_ = false;
};

/// Runs a program to its end.
Outcome run_program(const std::vector<std::string>& words, const std::filesystem::path& folder,
                    std::chrono::seconds limit = run_limit);

/// The words that start mpirun with `ranks` ranks of what follows.
std::vector<std::string> mpirun(int ranks);

/// The words that start `build/finetune` with `arguments`: by itself on one rank, otherwise with
/// mpirun.
std::vector<std::string> finetune_on(int ranks, const std::vector<std::string>& arguments);

/// A folder of this name for a test alone, below the build folder; empty.
std::filesystem::path empty_folder(const std::string& name);

/// How often `part` occurs in `text`.
int count(const std::string& text, const std::string& part);

}  // namespace finetune::tests
