#pragma once
// SPDX-License-Identifier: Apache-2.0
// The content of data files as a few digits, the same for every rank that sees the same files.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/tokens/detail/ranks.hpp"

namespace finetune::data {

/// Size and XXH3-128 (of the digests of 8 MiB blocks) of each file, as text. Each byte is read
/// once: by one rank of all where all nodes see the same files on a shared file system (the same
/// inode, size and times), else by one rank of each node. What the folder `memo` has of such shared
/// files is not read again; `keeps` what is new there.
/// Collective on the world. Throws: comm::AgreedError, ErrorKind::input naming the file and two
/// nodes if they hold different ones, or a file that cannot be read.
std::vector<std::string> digest_files(const DataRanks& ranks,
                                      std::span<const std::filesystem::path> files,
                                      const std::filesystem::path& memo = {}, bool keeps = false);

/// Whether every node sees the same file at `path`, going by inode, size and times; false if one
/// sees none. Collective on the world.
bool is_same_everywhere(const DataRanks& ranks, const std::filesystem::path& path);

}  // namespace finetune::data
