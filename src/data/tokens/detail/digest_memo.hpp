#pragma once
// SPDX-License-Identifier: Apache-2.0
// Digests of data files, kept beside the token cache: a file that is what it was is not read again
// to find its tokens, whose own digests are looked at anyway.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace finetune::data {

/// The digests that `folder` has of `files`, an empty text for each of which it has none, or which
/// has since become another file by its core::file_identity. A memo that cannot be read is none.
std::vector<std::string> recall_digests(const std::filesystem::path& folder,
                                        std::span<const std::filesystem::path> files);

/// Keeps them, besides those that are there, for the next start; not of a file that has changed
/// less than so many seconds ago: its times might be the same after another change within the same
/// tick of a clock. A folder that cannot be written keeps none.
void keep_digests(const std::filesystem::path& folder, std::span<const std::filesystem::path> files,
                  std::span<const std::string> digests, std::int64_t settled_after_s = 10);

}  // namespace finetune::data
