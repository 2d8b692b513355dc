#pragma once
// SPDX-License-Identifier: Apache-2.0
// Folders that checkpoints of other branches are moved to, as a whole: <root>/branch-1 and so on.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/lineage.hpp"

namespace finetune::checkpoint {

/// Whether it is a name such as "branch-1".
bool is_branch_folder(std::string_view name);

/// The first such name that nothing in `root` has.
std::string new_branch_folder(const std::filesystem::path& root);

/// Moves the checkpoints in `root` that `line` does not hold to the folder `name` in it, which is
/// made where it is missing, with the evaluations of steps behind its beginning, and copies
/// metrics.jsonl and the deck there, as they are now, unless that was done before. One that cannot
/// be read is moved if the line began before its step. Each is found in one of the two places at
/// any time; what was interrupted is completed by the same call. Returns the steps that were moved,
/// newest first. By one rank. Throws: ErrorKind::create naming what cannot be moved.
std::vector<std::int64_t> move_aside(const std::filesystem::path& root, const Line& line,
                                     const std::string& name, Access access);

/// Moves the checkpoint of `step` in `root` to a folder of its branch if another run than `line`
/// saved it; what cannot be read stays. By one rank. Throws: as move_aside.
void move_aside_other(const std::filesystem::path& root, std::int64_t step, const Line& line,
                      Access access);

}  // namespace finetune::checkpoint
