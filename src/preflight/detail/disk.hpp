#pragma once
// SPDX-License-Identifier: Apache-2.0
// The output folder as each node sees it: writable, the same everywhere, fast enough, with room.

#include <cstdint>
#include <filesystem>
#include <string>

#include "comm/communicator.hpp"
#include "preflight/detail/facts.hpp"

namespace finetune::preflight {

/// The folder `path`, or the nearest one above it that exists.
std::filesystem::path existing_folder(const std::filesystem::path& path);

/// Free bytes for this user in the file system of `folder`; -1 if the system does not say.
std::int64_t free_bytes(const std::filesystem::path& folder);

/// Writes `bytes` to a new file in `folder`, waits until they are on the disk, reads them back past
/// the page cache as far as the file system allows it, and removes the file. GB/s of both; a rate
/// of 0 where `bytes` is 0. Throws: core::Error if the file cannot be made or written.
struct DiskRates {
  double write_gb_per_s = 0;
  double read_gb_per_s = 0;
};
DiskRates try_disk(const std::filesystem::path& folder, std::int64_t bytes);

/// What each node sees of `output`. With `probe_bytes` above 0 every node writes and reads so many,
/// all at once. A file of rank 0 shows whether the folder is the same everywhere. Rank 0's folder
/// is what counts; a folder that only exists after the run has begun is not made. Where there is
/// one node and nothing to probe, nothing is written: the run itself will at once. Collective on
/// `leaders`, which has one rank a node.
DiskFacts look_at_disk(const comm::Communicator& leaders, const std::filesystem::path& output,
                       std::int64_t probe_bytes);

}  // namespace finetune::preflight
