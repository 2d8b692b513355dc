#pragma once
// SPDX-License-Identifier: Apache-2.0
// What the fault tests share: runs with faults planted in them, and what is left on disk.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "restart/job.hpp"

namespace finetune::tests {

/// The program's exit codes (as in sysexits.h), by what they tell a jobscript.
namespace exits {
inline constexpr int done = 0;
inline constexpr int unusable_input = 65;
inline constexpr int bug = 70;
inline constexpr int cannot_create = 73;
inline constexpr int io = 74;
inline constexpr int stopped_saved = 75;
inline constexpr int stopped_unsaved = 76;
inline constexpr int mismatch = 78;
inline constexpr int no_progress = 79;
}  // namespace exits

/// Variables NAME=VALUE for the ranks of a run, not for mpirun.
using Environment = std::vector<std::string>;

/// The words that start `job`, its ranks with `environment`.
std::vector<std::string> command(const Job& job, int ranks, const Environment& environment,
                                 const std::vector<std::string>& more = {});
Outcome run(const Job& job, int ranks, const Environment& environment = {},
            const std::vector<std::string>& more = {});

/// Variables that put the shim under the output folder of `job`; `more` are FINETUNE_SHIM_... .
Environment with_shim(const Job& job, const Environment& more);

/// A few optimizer steps with a checkpoint after each.
std::vector<std::string> save_every_step(int max_steps);

/// Process ids of the ranks that run in the folder of `job`, by rank.
std::map<int, pid_t> ranks_of(const Job& job);
/// Waits for their end, which the kernel may still be busy with after mpirun's. False if one stays.
bool all_ranks_are_gone(const Job& job);

/// Waits until the metrics hold the row of `step`. False if the run ended before.
bool wait_for_step(Process& process, const Job& job, int step = 1);

/// Last step in metrics.jsonl; 0 if there is none. A torn last row does not count.
std::int64_t last_step(const Job& job);

std::filesystem::path step_folder(const Job& job, std::int64_t step);
/// Steps of folders step-NNNNNNNNNN, ascending.
std::vector<std::int64_t> steps_on_disk(const Job& job);
/// Names of what a save or a removal has not finished.
std::vector<std::string> leftovers(const Job& job);

/// The step of the last line "saved output/step-..." of a log.
std::optional<std::int64_t> last_saved(const std::string& log);
/// The step of the line "continues from output/step-...".
std::optional<std::int64_t> resumed_from(const std::string& log);

/// `finetune verify` on a folder of `job`.
Outcome verify(const Job& job, const std::string& folder = "output");

/// The bytes of all HDF5 files of a checkpoint: weights and moments. Empty if there are none.
std::string tensors_of(const Job& job, std::int64_t step);

/// A run that nothing happened to, for comparison with those that something happened to.
class WholeRun {
 public:
  /// Runs save_every_step(num_steps).
  WholeRun(const std::string& name, int ranks, int num_steps);

  const Job& job() const { return job_; }

  /// After `job`, of the same settings, was interrupted and had printed `log`: expects that all its
  /// checkpoints verify, and that another start goes on from the newest, which is not older than
  /// what was reported as saved and loses `most_lost` steps at most, to the same end. A save is
  /// written while the next step runs: that step and the one being saved may go. Returns what the
  /// start printed.
  Outcome expect_good_restart(const Job& job, const std::string& log, int most_lost = 2) const;

  /// Expects the metrics and last weights of this run in `job`, to the bit, and nothing left over.
  void expect_same_end(const Job& job) const;

 private:
  int ranks_;
  int num_steps_;
  Job job_;
  std::string tensors_;
};

/// Value of an environment variable that makes a test longer; `otherwise` if it is not set.
int count_from_environment(const char* name, int otherwise);

}  // namespace finetune::tests
