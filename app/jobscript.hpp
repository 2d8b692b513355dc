#pragma once
// SPDX-License-Identifier: Apache-2.0
// Jobscripts filled in for a deck: what `finetune plan --jobscript` prints.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace finetune::app {

/// What a job asks the scheduler for.
struct Job {
  std::string deck;                   ///< its path as the user gave it
  std::vector<std::string> settings;  ///< key=value
  std::int64_t num_nodes = 1;
  std::int64_t ranks_per_node = 1;
  std::int64_t cores_per_rank = 1;  ///< 0: Slurm's nodes are shared out among their ranks
  std::int64_t gpus_per_node = 0;
  std::int64_t walltime_s = 3600;         ///< 0: not said
  std::int64_t node_memory_bytes = 0;     ///< 0: not said
  std::string account = {};               ///< empty: not said
  std::string queue = {};                 ///< Slurm's partition; empty: not said
  std::vector<std::string> options = {};  ///< more of sbatch's or qsub's, as after #SBATCH or #PBS
  std::string note = {};                  ///< a comment before the directives; empty: none
};

/// The text of the shipped script for `scheduler` ("slurm", "pbs", "torque") with this job's
/// directives and deck in it: what is printed can be handed to sbatch or qsub as it is.
/// Throws: ErrorKind::environment if the shipped script is not there,
/// ErrorKind::command_line if there is none for this scheduler, or an option has several lines.
std::string jobscript(const std::string& scheduler, const Job& job);

/// The same with the scripts in another folder, for tests.
std::string jobscript(const std::string& scheduler, const Job& job,
                      const std::filesystem::path& jobscripts);

}  // namespace finetune::app
