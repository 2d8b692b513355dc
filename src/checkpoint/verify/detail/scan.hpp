#pragma once
// SPDX-License-Identifier: Apache-2.0
// Reads all data of a checkpoint once, on all cores, without holding more of
// it than a block a core. Neither MPI nor HDF5.

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/format/detail/numbers.hpp"
#include "checkpoint/load/find.hpp"

namespace finetune::checkpoint {

struct [[nodiscard]] ScanReport {
  std::vector<std::string> problems;  ///< one a damaged block or skeleton, as they lie in the files
  std::int64_t bytes = 0;             ///< read and compared
  std::vector<ValueSummary> tensors;  ///< of their good blocks; as in Manifest::tensors
};

/// Reads the files named by their index in Manifest::files, which have the right sizes, and
/// compares all checksums. Negative values are counted for tensors of `unsigned_kinds`. Goes on
/// after a problem. Memory: a block, or 1 MiB if that is more, for each core.
ScanReport scan(const FoundCheckpoint& found, const std::vector<std::int64_t>& files,
                const std::vector<std::string>& unsigned_kinds);

/// The path of a file of the checkpoint.
std::filesystem::path path_of(const FoundCheckpoint& found, std::int64_t file);

}  // namespace finetune::checkpoint
