#pragma once
// SPDX-License-Identifier: Apache-2.0
// The quick look at a checkpoint folder, which reads no data.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/load/find.hpp"
#include "core/error.hpp"

namespace finetune::checkpoint {

/// The two small files of a checkpoint, as they were read.
struct Candidate {
  std::filesystem::path folder;
  std::string manifest_text;
  std::string state_text;
};

/// Largest state.json that is read.
inline constexpr std::int64_t largest_state_bytes = std::int64_t{64} << 20;

/// Reads both files. Throws: ErrorKind::input.
Candidate read_candidate(const std::filesystem::path& folder);

/// Checks manifest and state against each other and against the folder's name.
/// Throws: ErrorKind::input.
FoundCheckpoint parse(const Candidate& candidate);

/// The run that saved the checkpoint in `folder`, by its small files alone: state.json, whose
/// fingerprint the beginning of the manifest has to hold. Nothing if it cannot be read so.
std::optional<Line> saved_by(const std::filesystem::path& folder);

/// Compares the sizes of the data files with the manifest's. Throws: ErrorKind::input.
void check_file_sizes(const FoundCheckpoint& found);

/// What a user reads where a checkpoint was asked for and `path` is none and holds none.
core::Message no_checkpoint_in(const std::filesystem::path& path);

}  // namespace finetune::checkpoint
