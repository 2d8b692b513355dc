#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether two looks at a path saw the same file.

#include <filesystem>
#include <string>

namespace finetune::core {

/// Inode, size and times of a file, in words; empty if there is none. Two copies of a file never
/// agree in all of these; two views of one on a shared file system do, but for its device, which is
/// left out.
std::string file_identity(const std::filesystem::path& path);

}  // namespace finetune::core
