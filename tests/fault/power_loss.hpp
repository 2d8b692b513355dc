#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a loss of power may leave of a folder, from the log that the shim wrote (FINETUNE_SHIM_LOG).

#include <filesystem>
#include <random>

namespace finetune::tests {

/// What was taken away.
struct PowerLoss {
  int files_cut = 0;       ///< lost what was written after their last fsync
  int entries_undone = 0;  ///< names made or changed after the last fsync of their folder
};

/// Leaves the pessimistic state in `root`: of each file what was synced, cut or followed by zeros;
/// of creations and renames that no fsync of their folder covered, a random suffix is undone (file
/// systems keep their order). Deleted files stay deleted. A sync covers what was noted before it
/// began.
/// Throws std::runtime_error if the log cannot be read.
PowerLoss lose_power(const std::filesystem::path& root, const std::filesystem::path& log,
                     std::mt19937_64& random);

}  // namespace finetune::tests
