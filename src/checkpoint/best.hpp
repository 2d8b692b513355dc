#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which checkpoint is worth exporting.

#include <filesystem>
#include <optional>

#include "checkpoint/find.hpp"
#include "core/json.hpp"

namespace finetune::checkpoint {

/// The validation loss that a checkpoint's state.json has, if it has one.
std::optional<double> validation_loss(const core::Json& state);

/// Opens the checkpoint in the folder `root` with the lowest validation loss, of equal ones the
/// newest. Those whose manifest, state or file sizes are bad are passed over with a warning each.
/// Without MPI. Throws: ErrorKind::input if there are none, or none has a validation loss.
Found open_best(const std::filesystem::path& root);

}  // namespace finetune::checkpoint
