#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether all nodes see the same model and data.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "preflight/detail/report.hpp"

namespace finetune::preflight {

/// Files up to this size are hashed whole.
inline constexpr std::int64_t whole_file_bytes = std::int64_t{16} << 20;

/// XXH3-128 of the size and the content of `path`; beyond `whole_bytes`, of 32 blocks of 64 KiB
/// spread evenly over it, the first and the last among them: the same positions everywhere, so that
/// a model of any size takes a moment. Throws: core::Error.
std::string sampled_hash(const std::filesystem::path& path, std::int64_t whole_bytes);

/// A file of one node, as compared with those of others.
struct SeenFile {
  std::string path;
  std::int64_t size_bytes = -1;  ///< -1: it cannot be read
  std::string identity;          ///< inode and times: equal for two views of one file alone
  std::string hash;              ///< empty: not read
};

/// `paths`, and for a folder the files directly in it, sorted. Nothing is read.
std::vector<SeenFile> list_files(const std::vector<std::filesystem::path>& paths);

/// What node `odd` has that differs from what node `usual` has: one problem a file.
std::vector<CheckProblem> compare(const std::vector<SeenFile>& usual, const std::string& usual_name,
                                  const std::vector<SeenFile>& odd, const std::string& odd_name);

/// Compares what the first rank of each node sees at `paths` (which are rank 0's). Where all see
/// the very same files, on a file system that they share, `is_quick` leaves it at that; otherwise
/// each node hashes its own. The finding is rank 0's; elsewhere it is empty. Collective on
/// `leaders`, which has one rank a node, in the order of `names`.
Finding check_files(const comm::Communicator& leaders, const std::vector<std::string>& names,
                    std::vector<std::filesystem::path> paths, bool is_quick);

}  // namespace finetune::preflight
