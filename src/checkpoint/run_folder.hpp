#pragma once
// SPDX-License-Identifier: Apache-2.0
// The folder of a run: made, proven and held by one job at a time, with a note of its starts.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/format/detail/note.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/run_lock.hpp"
#include "core/json.hpp"

namespace finetune::checkpoint {

/// What an earlier start in this folder chose where the deck left it open; null without one. Read
/// before the folder is held: a choice that comes from elsewhere is only as good as none.
core::Json noted_choice(const std::filesystem::path& root);

/// Whether there are checkpoints in `root`, good or not.
bool has_checkpoints(const std::filesystem::path& root);

/// Of a run's folder: the model with new tokens that it began with (train/input/grown_model.hpp).
inline constexpr const char* grown_model_name = "grown_model";

/// What lies in `root` and is no part of a run, in order, where no run of ours was there before;
/// nothing in a folder that is missing.
std::vector<std::string> foreign_entries(const std::filesystem::path& root);

/// One rank of a job has one. Without MPI.
class RunFolder {
 public:
  /// Makes the folder if it is missing, tries that files can be written, synced, renamed and
  /// removed in it, and locks it until this object goes or the process ends (see RunLock).
  /// Throws: ErrorKind::create with the reason, or naming the job that holds it.
  RunFolder(const std::filesystem::path& root, Access access);

  /// Tells this run from others that used the same folder before; checkpoints on disks of nodes
  /// carry it.
  const std::string& run_id() const { return note_.id; }
  /// The run continues on the line of its checkpoint; an id of "" is replaced by a new one. Returns
  /// the line.
  Line continue_line(Line line);

  /// Begins another run, on purpose: `line` (checkpoint::go_back), which gets an id. What lies in
  /// the folder and is not its past is left. Written down at once: later starts go on with this
  /// run, whenever this one ends. Returns the line. Throws: ErrorKind::create or io.
  Line begin_branch(Line line);

  /// Moves checkpoints that `begin_branch` left, in this start or one that was interrupted, to a
  /// folder of their own, and says so. Throws: ErrorKind::create.
  void leave_others();

  /// What this start chose; `begin` writes it down, and later starts read it with `noted_choice`.
  void set_choice(core::Json choice) { note_.choice = std::move(choice); }

  /// Notes a start from `step` with a deck and program of this fingerprint.
  /// Throws: ErrorKind::no_progress if `max_starts` before it (0: any number) ended without a
  /// checkpoint; ErrorKind::create if the note cannot be written.
  void begin(std::int64_t step, const std::string& fingerprint, std::int64_t max_starts);

  /// A new checkpoint: starts count from nothing again. A note that cannot be written is a warning.
  void note_progress();

 private:
  void write() const;

  std::filesystem::path root_;
  Access access_;
  RunLock lock_;
  RunNote note_;
};

}  // namespace finetune::checkpoint
