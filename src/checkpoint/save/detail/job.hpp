#pragma once
// SPDX-License-Identifier: Apache-2.0
// What each rank writes into which file, found out by the ranks together
// before anything is written.

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "checkpoint/format/detail/payload.hpp"
#include "checkpoint/save/detail/records.hpp"
#include "checkpoint/save/save.hpp"

namespace finetune::checkpoint {

/// One rank's share of a save.
struct RankJob {
  PayloadJob payload;
  std::vector<SliceRecord> slices;  ///< by payload; checksums are filled in once they are known
  std::vector<SliceRecord> empty;   ///< tensors without elements
  bool lays_out_file = false;
};

/// Throws: ErrorKind::bug for slices that no checkpoint can hold.
void check_arguments(std::int64_t step, std::span<const StoredSlice> slices,
                     const SaveOptions& options);

/// Lays out the file of each group of ranks and sends every rank the positions of its slices.
/// Collective on the writers' world, on its main threads.
RankJob make_job(const Writers& writers, const std::filesystem::path& folder,
                 std::span<const StoredSlice> slices, const SaveOptions& options);

/// A job that writes the same bytes, as a message to another rank.
std::vector<std::byte> pack(const PayloadJob& job);
/// The job in such a message, for a file of the same name in `folder`. Points into `message`.
PayloadJob unpack(std::span<const std::byte> message, const std::filesystem::path& folder,
                  const PayloadJob& like);

}  // namespace finetune::checkpoint
