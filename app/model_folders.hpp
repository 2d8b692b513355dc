#pragma once
// SPDX-License-Identifier: Apache-2.0
// Folders that commands take for models.

#include <filesystem>
#include <string>

namespace finetune::app {

/// Whether it is the output of a run.
bool is_run(const std::filesystem::path& folder);

/// A run's output holds checkpoints; what is read here are exports. Throws: ErrorKind::input.
void require_no_run(const std::filesystem::path& folder);

/// The folder of an adapter if it has a chat template, which takes the place of the model's; else
/// empty, as for no adapter. `key` as data::model_templates. Throws: ErrorKind::input.
std::filesystem::path folder_with_template(const std::filesystem::path& adapter,
                                           const std::string& key);

/// "runs/chats" of "runs/./chats/": a path whose last name is that of the folder.
std::filesystem::path without_last_slash(const std::filesystem::path& folder);

}  // namespace finetune::app
