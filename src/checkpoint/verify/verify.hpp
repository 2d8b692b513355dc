#pragma once
// SPDX-License-Identifier: Apache-2.0
// Reads whole checkpoints: compares every byte with its checksum and looks at every number.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run_state.hpp"

namespace finetune::checkpoint {

/// All tensors of one kind together.
struct KindSummary {
  std::string kind;
  std::int64_t num_tensors = 0;
  std::int64_t bytes = 0;
  double norm = 0;  ///< L2, over all finite elements of good blocks
};

struct VerifiedCheckpoint {
  std::filesystem::path folder;
  std::int64_t step = 0;                  ///< as its folder is called
  std::int64_t bytes = 0;                 ///< of its data files, as its manifest says
  std::int64_t num_problems = 0;          ///< its share of Verification::problems
  std::optional<double> validation_loss;  ///< where state.json has one
  std::optional<Score> score;             ///< likewise, of another name
  std::string other_branch;               ///< whose it is, if not of the branch written last
  std::vector<KindSummary> kinds;         ///< by name; empty if the manifest is bad
};

struct Verification {
  std::vector<std::string> problems;            ///< one sentence each; empty if all is well
  std::vector<VerifiedCheckpoint> checkpoints;  ///< newest first
  std::string other_branches;                   ///< that lie there, in words; empty without any
  std::int64_t num_tensors = 0;                 ///< (kind, name) pairs
  std::int64_t bytes = 0;                       ///< read and compared
};

/// Verifies the checkpoint folder `path`, or all checkpoints in `path`, of whatever branch, but not
/// those in folders that branches were moved to: manifest and state, sizes,
/// every element of every tensor exactly once, every byte of every file; every floating element is
/// finite, and none of tensors of `unsigned_kinds` negative. Goes on after a problem, to the end;
/// of more than 10,000 problems of a checkpoint the rest is counted. On all cores; memory: the
/// manifest and a block a core. Without MPI and HDF5. A path without checkpoints is a problem.
Verification verify(const std::filesystem::path& path,
                    const std::vector<std::string>& unsigned_kinds = {});

}  // namespace finetune::checkpoint
