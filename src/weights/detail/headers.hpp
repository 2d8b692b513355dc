#pragma once
// SPDX-License-Identifier: Apache-2.0
// What one process reads of a model's files for all: index and headers, packed into one text.

#include <filesystem>
#include <string>

namespace finetune::weights {

inline constexpr const char* index_name = "model.safetensors.index.json";

/// Of the folder or file that ModelFiles::open takes. Throws: ErrorKind::input for files that are
/// missing, all in one error, and for those that do not hold what their headers promise, likewise.
std::string read_model_headers(const std::filesystem::path& path);

/// Of one file of a folder.
std::string read_file_headers(const std::filesystem::path& folder, const std::string& file);

}  // namespace finetune::weights
