#pragma once
// SPDX-License-Identifier: Apache-2.0
// Folders that commands take for models.

#include <filesystem>

namespace finetune::app {

/// Whether it is the output of a run.
bool is_run(const std::filesystem::path& folder);

/// A run's output holds checkpoints; what is read here are exports. Throws: ErrorKind::input.
void require_no_run(const std::filesystem::path& folder);

/// "runs/chats" of "runs/./chats/": a path whose last name is that of the folder.
std::filesystem::path without_last_slash(const std::filesystem::path& folder);

}  // namespace finetune::app
