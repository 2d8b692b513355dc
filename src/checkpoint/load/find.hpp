#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which checkpoint to continue from.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/detail/manifest.hpp"
#include "checkpoint/run_state.hpp"
#include "comm/communicator.hpp"

namespace finetune::checkpoint {

/// A checkpoint whose manifest, state and file sizes are good. Its data are checked when read.
struct FoundCheckpoint {
  std::filesystem::path folder;
  std::int64_t step = 0;
  RunState state;
  Manifest manifest;
  /// By file of the manifest, whether this rank can read it; empty: all of them.
  std::vector<bool> files_here = {};

  /// Whether it is on disks of nodes.
  bool is_local() const { return !files_here.empty(); }
  bool is_here(std::int64_t file) const {
    return files_here.empty() || files_here[static_cast<std::size_t>(file)];
  }
};

inline constexpr std::int64_t any_step = std::numeric_limits<std::int64_t>::max();

/// Finds the checkpoint in `root` that `resume` asks for: "auto" the newest good one of the branch
/// written last (read_branch) and of a step below `before_step`, nothing if that has none at all;
/// "never" nothing; otherwise the one of that folder name, and no other. Says in one warning each
/// which ones it skipped and why.
///
/// The root reads; every rank gets the same manifest. Collective on `world`.
/// Throws: AgreedError of kind input if there are checkpoints but none is good.
std::optional<FoundCheckpoint> find(const comm::Communicator& world,
                                    const std::filesystem::path& root, const std::string& resume,
                                    std::int64_t before_step = any_step);

/// Opens the checkpoint folder `path`, or the newest good checkpoint in `path` of the branch that
/// was written last, naming other branches. Without MPI.
/// Throws: ErrorKind::input.
FoundCheckpoint open(const std::filesystem::path& path);

}  // namespace finetune::checkpoint
