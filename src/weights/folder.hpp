#pragma once
// SPDX-License-Identifier: Apache-2.0
// Files of a model folder that others have written.

#include <filesystem>
#include <string>

#include "core/file.hpp"

namespace finetune::weights {

/// Opens the file `name` of the model folder `folder` for reading. A symbolic link is followed only
/// where the Hugging Face cache has them: into `../../blobs/<hex>` of the same repository; any
/// other could lead to a file that the owner of the folder may not read, but we may.
/// Throws: ErrorKind::input if it is missing, not a file, or a link elsewhere.
core::File open_in_folder(const std::filesystem::path& folder, const std::string& name);

/// Whether `folder` has an entry `name` of any kind.
bool is_in_folder(const std::filesystem::path& folder, const std::string& name);

/// The text of such a file. Throws: ErrorKind::input, also beyond `limit_bytes`.
std::string read_text_in_folder(const std::filesystem::path& folder, const std::string& name,
                                std::int64_t limit_bytes);

}  // namespace finetune::weights
