#pragma once
// SPDX-License-Identifier: Apache-2.0
// The branch of a folder of checkpoints that was written last: the one that "newest" and "best"
// speak of. Without MPI.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/lineage.hpp"

namespace finetune::checkpoint {

/// Checkpoints of one run that are not of the branch written last.
struct OtherBranch {
  bool is_folder = false;                ///< they were moved to one of their own
  std::string where = {};                ///< its name, or "run 0123abcd"
  std::vector<std::int64_t> steps = {};  ///< newest first
};

struct Branch {
  Line line = {};
  std::vector<std::int64_t> steps = {};  ///< newest first; also those that cannot be read
  std::vector<OtherBranch> others = {};
  std::int64_t highest = 0;  ///< of Lineage::branch, of all that lie there
  /// Whether the run was begun on purpose by going back: what else lies there is not gone on from,
  /// though it may have saved nothing yet.
  bool is_begun = false;

  bool holds_any() const { return !steps.empty() || !others.empty(); }
};

/// The branch in `root` that was written last: of the run that .run.json names; where that is of no
/// help, of the run with the highest Lineage::branch, of equal ones the highest id.
/// Throws: ErrorKind::input if the folder cannot be read.
Branch read_branch(const std::filesystem::path& root);

/// What changes when a start in `root` begins a branch, or goes on with one.
std::filesystem::path note_path(const std::filesystem::path& root);

/// The other branches and their checkpoints, in words; empty without any.
std::string describe_others(const Branch& branch);

/// Says in one line which other branches lie in `root`, if any do.
void tell_others(const std::filesystem::path& root, const Branch& branch);

/// Whether checkpoint.resume = `resume` leaves alone all that was trained in `root`, and this for
/// the first time.
bool begins_anew(const std::filesystem::path& root, const std::string& resume);

}  // namespace finetune::checkpoint
