#pragma once
// SPDX-License-Identifier: Apache-2.0
// How a run is, judged from its folder alone.

#include <optional>
#include <string>

#include "report/run_history.hpp"

namespace finetune::report {

enum class RunState {
  finished,  ///< all steps are done
  running,
  starting,  ///< a job holds the folder and has not begun to train
  waiting,   ///< stopped early with a checkpoint, or not begun: the next start continues
  hung,      ///< a job holds the folder, but nothing was written for far too long
  dead,      ///< no job holds the folder, and the last start did not say how it ended
  failed,    ///< the last start ended with an error
};

struct Verdict {
  RunState state = RunState::running;
  std::string why;       ///< a sentence without full stop, for people
  int num_restarts = 0;  ///< starts that went on from a checkpoint
};

/// "finished", "running", ...
std::string to_string(RunState state);

/// The exit code of `finetune watch`: 0 finished, 10 running, 11 starting, 12 waiting, 13 hung,
/// 14 dead, 15 failed.
int exit_code(RunState state);

/// Whether a job holds the folder; nothing where its file system has no locks, or no lock is there.
std::optional<bool> is_held(const std::filesystem::path& folder);

/// `now_s`: seconds since 1970. `held` as `is_held` has it.
Verdict judge(const RunHistory& run, std::optional<bool> held, double now_s);

/// The longest silence of a run that is well: twenty usual steps, a minute at least; before the
/// first step of a start as long as its own watchdog waits (train.hang_timeout_s).
double patience_s(const RunHistory& run);

/// Seconds until all steps are done, by those of the last ones; nothing where that is not known.
std::optional<double> seconds_left(const RunHistory& run);

}  // namespace finetune::report
