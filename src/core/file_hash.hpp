#pragma once
// SPDX-License-Identifier: Apache-2.0
// Hashes that others give with their files.

#include <string>

#include "core/file.hpp"

namespace finetune::core {

/// SHA-256 of the file's bytes, 64 hexadecimal digits. Memory: 8 MiB. Throws: ErrorKind::io.
std::string sha256_of(const File& file);

/// How git names the file's content: SHA-1 of "blob SIZE\0" and its bytes, 40 hexadecimal digits.
/// Memory: 8 MiB. Throws: ErrorKind::io.
std::string git_name_of(const File& file);

}  // namespace finetune::core
