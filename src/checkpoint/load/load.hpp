#pragma once
// SPDX-License-Identifier: Apache-2.0
// Loading: every rank fills the slices it wants, whatever ranks wrote the checkpoint.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/load/find.hpp"
#include "comm/communicator.hpp"
#include "core/tensor_slice.hpp"

namespace finetune::checkpoint {

/// Elements of a logical tensor that this rank needs, and where it needs them. The slice may be one
/// of any box, however the tensor was cut when it was saved.
struct WantedSlice {
  std::string kind;
  core::TensorSlice slice;
  std::byte* data = nullptr;  ///< slice.size_bytes() bytes
};

struct LoadReport {
  std::int64_t bytes_read = 0;    ///< from files, by all ranks
  std::int64_t bytes_wanted = 0;  ///< by all ranks
  double total_s = 0;
};

/// Reads this rank's bytes and nothing else, but for the rest of checksum blocks at the borders.
/// Name, dtype and shape must be those saved. On an error what `wanted` points to is undefined.
///
/// Collective on `world`.
/// Throws: AgreedError of kind input naming file, block and tensor, or io.
LoadReport load(const comm::Communicator& world, const FoundCheckpoint& found,
                std::span<const WantedSlice> wanted);

/// What this rank wants, asked for once and only if there is something to read: memory for it is
/// taken then.
using AskWanted = std::function<std::vector<WantedSlice>()>;

/// Where a run looks for a checkpoint to continue from.
struct Sources {
  std::filesystem::path root;
  std::string resume = "auto";
  /// Where nodes keep checkpoints of their own; empty: nowhere. Looked at with "auto" only.
  std::filesystem::path local_root = {};
  comm::Communicator node = {};  ///< the ranks that see the same local_root
  std::string run_id = {};       ///< of the run whose local checkpoints count
  /// Looks at what was found before it is loaded, on every rank; what it throws of kind input makes
  /// "auto" pass it over. May be empty.
  std::function<void(const FoundCheckpoint&)> accept = {};
};

/// find and load together, on both levels: the newest wins. Goes on to older checkpoints while
/// "auto" finds damaged data, with a warning for each. `report`, if given, is of the one that was
/// loaded. Collective on `world`. Throws: as find and load; if no checkpoint is good, or one fits
/// another model.
std::optional<FoundCheckpoint> find_and_load(const comm::Communicator& world,
                                             const Sources& sources, const AskWanted& wanted,
                                             LoadReport* report = nullptr);

}  // namespace finetune::checkpoint
