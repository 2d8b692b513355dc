#pragma once
// SPDX-License-Identifier: Apache-2.0
// The folder that a run writes to, and what it holds in addition to checkpoints.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "checkpoint/run_folder.hpp"
#include "checkpoint/settings.hpp"
#include "core/json.hpp"
#include "metrics/records.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// train.output, and where checkpoints have a node-local level each node's folder for it. Both are
/// held from construction on. Functions that say so are collective on the world; they throw
/// AgreedError of ErrorKind::create unless they say otherwise.
class OutputFolder {
 public:
  /// Makes and locks the folder, and copies the log, and errors of other ranks, to finetune.log
  /// there. `choice` is what this start chose where the deck left it open; null if it chose
  /// nothing. Collective.
  OutputFolder(std::filesystem::path root, const checkpoint::CheckpointSettings& settings,
               core::Json choice, const world::World& world);

  const std::filesystem::path& root() const { return root_; }
  /// Where node-local checkpoints go; empty without that level.
  const std::filesystem::path& local_root() const { return local_root_; }
  /// The root's; null on other ranks.
  checkpoint::RunFolder* run_folder() { return folder_.get(); }
  std::filesystem::path metrics_path() const { return root_ / "metrics.jsonl"; }

  /// Of the run that used the folder before, or of a new one. Collective.
  std::string run_id() const;
  /// metrics.jsonl as it was at the checkpoint that a run goes on from; the root's alone.
  /// `keeps_all`: also what came later.
  metrics::RecordFile continue_metrics(std::int64_t keep_bytes, bool keeps_all) const;
  /// metrics.jsonl of a new run, which leaves that of an older one under another name; the root's
  /// alone.
  metrics::RecordFile begin_metrics() const;

  /// input.resolved.toml. Collective.
  void write_deck(const std::string& resolved) const;

  /// Notes a start from `step` with deck and program of this fingerprint. Collective.
  /// Throws: ErrorKind::no_progress if `max_starts` before it ended without a checkpoint.
  void note_start(std::int64_t step, const std::string& fingerprint, std::int64_t max_starts);

  /// Where flight records go; those of an earlier start are in flight.before from now on: the
  /// root moves them.
  std::filesystem::path flight_folder() const;

  /// Says which checkpoints of other branches lie there, if any do; on the root, without MPI.
  void tell_other_branches() const;

  /// Removes node-local checkpoints of other runs than `run_id` ("": all).
  void remove_local_of_others(const std::string& run_id) const;

 private:
  void claim(const checkpoint::CheckpointSettings& settings, core::Json choice);

  const world::World& world_;
  std::filesystem::path root_;
  std::unique_ptr<checkpoint::RunFolder> folder_;
  std::filesystem::path local_root_;
};

}  // namespace finetune::train
