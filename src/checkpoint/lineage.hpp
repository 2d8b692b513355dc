#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where a run comes from: which checkpoints of a folder are its past, and which belong to another
// branch.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"

namespace finetune::checkpoint {

/// A checkpoint that a run began from.
struct Ancestor {
  std::string run_id = {};
  std::int64_t step = 0;

  bool operator==(const Ancestor&) const = default;
};

/// What a run knows of the runs before it in its folder. All of it is empty for one that began in
/// an empty folder, and for those of earlier versions.
struct Lineage {
  /// How often runs in the folder went back before this one began: of two branches, the higher is
  /// the newer.
  std::int64_t branch = 0;
  std::vector<Ancestor> parents = {};  ///< nearest first; none: it began from the model
  std::vector<std::string> begun_by =
      {};  ///< values of checkpoint.resume, of this run and its parents

  /// What `to_json` wrote. What does not fit is left out.
  static Lineage from_json(const core::Json& json);
  core::Json to_json() const;
};

/// A run, and the checkpoints of other runs that it goes on from.
struct Line {
  std::string run_id = {};
  Lineage lineage = {};

  /// Whether the checkpoint of `step` that the run `id` saved is this run's, or one before it.
  bool holds(std::string_view id, std::int64_t step) const;
  /// Whether this value of checkpoint.resume went back before: to begin this run, or an earlier
  /// one.
  bool was_begun_by(std::string_view resume) const;
};

/// The line of a new run, without an id yet, that goes back because checkpoint.resume = `resume`
/// asks for it: to the checkpoint of `step` on the line `from`, or to the model (`from` is null).
/// `last` is the line that was written last: what was asked for before is remembered.
Line go_back(const std::string& resume, const Line& last, const Line* from, std::int64_t step);

/// checkpoint.resume without the number that asks for the same once more: "never" for "never#2".
std::string_view without_number(std::string_view resume);

/// `resume` with the next number: "never#2" for "never", "never#3" for "never#2".
std::string once_more(std::string_view resume);

}  // namespace finetune::checkpoint
