#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which checkpoint is worth exporting.

#include <filesystem>

#include "checkpoint/load/find.hpp"

namespace finetune::checkpoint {

/// Opens the checkpoint in the folder `root`, of the branch that was written last, with the best
/// score (RunState::measured, of the name that the newest one has), of equal ones the newest. Those
/// whose manifest, state or file sizes are bad are skipped with a warning each. Without MPI.
/// Throws: ErrorKind::input if there are none, or none has a score.
FoundCheckpoint open_best(const std::filesystem::path& root);

}  // namespace finetune::checkpoint
