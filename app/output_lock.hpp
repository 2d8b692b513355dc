#pragma once
// SPDX-License-Identifier: Apache-2.0
// One process at a time writes to an output.

#include <filesystem>
#include <string>

#include "core/file.hpp"

namespace finetune::app {

/// Locks `file`, which stands for `output`, until it is closed. Where the file system has no locks,
/// it warns. Throws: ErrorKind::create if another process has the lock.
void lock_output(const core::File& file, const std::filesystem::path& output);

/// Creates `folder` and locks it by a file in it. Throws: ErrorKind::create.
core::File locked_folder(const std::filesystem::path& folder);

}  // namespace finetune::app
