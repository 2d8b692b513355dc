#pragma once
// SPDX-License-Identifier: Apache-2.0
// The note of a run in its folder: .run.json.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/lineage.hpp"
#include "core/json.hpp"

namespace finetune::checkpoint {

inline constexpr const char* note_name = ".run.json";

struct RunNote {
  std::string id;
  std::string fingerprint = {};         ///< of deck and program of the last start
  std::int64_t step = -1;               ///< that it began from
  std::int64_t starts = 0;              ///< from there, without a new checkpoint
  core::Json choice = {};               ///< what a start chose where the deck left it open
  std::optional<Lineage> lineage = {};  ///< none: of an earlier version
  /// The folder that checkpoints of other branches are being moved to; empty: all have been.
  std::string leaves_to = {};
};

/// The note in `root`; nothing without one that can be read: it is worth no more than none.
std::optional<RunNote> read_note(const std::filesystem::path& root);

/// Writes it, durably. Throws: ErrorKind::create or io.
void write_note(const std::filesystem::path& root, const RunNote& note);

}  // namespace finetune::checkpoint
