#pragma once
// SPDX-License-Identifier: Apache-2.0
// When a run saves, and what becomes of it if a save fails.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "checkpoint/run_folder.hpp"
#include "checkpoint/run_state.hpp"
#include "checkpoint/save/save.hpp"
#include "checkpoint/settings.hpp"
#include "comm/agree.hpp"
#include "core/clock.hpp"
#include "train/run/detail/state.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// The saves of one start: at most one is on its way at a time. All functions that say so are
/// collective on the world; they throw AgreedError only.
class Checkpoints {
 public:
  /// What a checkpoint says of the state as it is now, which may count on files that are synced
  /// now; called on every rank, not a collective. What it throws fails the save.
  using Describe = std::function<checkpoint::RunState()>;
  /// Told of every checkpoint that is there, on every rank.
  using Report = std::function<void(const checkpoint::SaveReport&, checkpoint::Level)>;

  /// `local_root`: where node-local checkpoints go. `run_folder` is the root's, null elsewhere.
  Checkpoints(const checkpoint::CheckpointSettings& settings, std::filesystem::path root,
              std::filesystem::path local_root, const world::World& world, State& state,
              checkpoint::RunFolder* run_folder, Describe describe, Report report);

  /// A checkpoint of this step is there already.
  void start_from(checkpoint::Level level, std::int64_t step);

  /// Whether by this rank's clock so much time has passed that a save is due.
  bool minutes_are_due(checkpoint::Level level) const;

  /// Looks after the save on its way. Collective; costs one small reduction while there is one.
  void advance();

  /// Begins a save of the state after `step` steps, as the settings say: during training or not.
  /// Failures are warnings, until there are too many. Collective.
  void begin(checkpoint::Level level, std::int64_t step);

  /// Whether the settings want one after `step` steps; `time_is_due`: their minutes, as the ranks
  /// agreed, or their epochs.
  bool is_due(checkpoint::Level level, std::int64_t step, bool time_is_due) const;

  /// Saves while training waits, and waits for what is on its way. Collective.
  /// Throws: AgreedError with the reason if it fails.
  void save_now(std::int64_t step);

  /// Waits for the save on its way, if any. Collective.
  void wait();

  /// Whether another start would find a checkpoint to continue from, on either level.
  bool has_any() const { return newest_.has_value() || has_local_; }
  /// Seconds that saves have taken from training so far.
  double take_blocked_s();

 private:
  checkpoint::SaveOptions options(checkpoint::Level level) const;
  const std::filesystem::path& root(checkpoint::Level level) const;
  void wait_quietly();
  void done();
  void failed(const comm::AgreedError& error, std::int64_t step);
  /// Runs `f` about the save of `step`; what fails is dealt with as the settings say.
  template <typename F>
  void attempt(std::int64_t step, F&& f);

  const checkpoint::CheckpointSettings& settings_;
  std::filesystem::path root_;
  std::filesystem::path local_root_;
  const world::World& world_;
  State& state_;
  checkpoint::RunFolder* run_folder_;
  Describe describe_;
  Report report_;
  std::unique_ptr<checkpoint::Saving> saving_;
  checkpoint::Level level_ = checkpoint::Level::shared;  ///< of saving_
  double copy_s_ = 0;                                    ///< of saving_'s snapshot
  double blocked_s_ = 0;
  core::Stopwatch since_shared_;
  core::Stopwatch since_local_;
  std::optional<std::int64_t> newest_;  ///< step of the newest on the shared level
  bool has_local_ = false;
  std::int64_t skipped_for_ = -1;  ///< step of the save for which others were skipped
  int failures_ = 0;               ///< in a row
};

}  // namespace finetune::train
