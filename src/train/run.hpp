#pragma once
// SPDX-License-Identifier: Apache-2.0
// A training run from its first line to its last checkpoint.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/find.hpp"
#include "checkpoint/run_folder.hpp"
#include "checkpoint/save.hpp"
#include "comm/environment.hpp"
#include "core/clock.hpp"
#include "metrics/progress.hpp"
#include "metrics/records.hpp"
#include "train/checkpoints.hpp"
#include "train/corpus.hpp"
#include "train/evaluate.hpp"
#include "train/input.hpp"
#include "train/state.hpp"
#include "train/stop.hpp"
#include "train/stop_vote.hpp"
#include "train/time_keeper.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// Wires the chain: data, shards and optimizer, restored if a checkpoint is there.
/// All public functions are collective on the world.
class Run {
 public:
  /// Throws: comm::AgreedError; see read, load_corpus, State::import, checkpoint::find_and_load.
  Run(const Input& input, const plan::Plan& plan, const world::World& world,
      const Registry& registry);

  /// Trains to the end. Returns core::exit_done, or if train.stop_after_steps, train.max_seconds or
  /// a signal to any rank ended it earlier core::exit_resubmit with a new checkpoint and
  /// core::exit_resubmit_older with an older one.
  /// What a rank throws alone is reported, and the job aborted, before anything is cleaned up: the
  /// other ranks wait for it.
  int loop(const comm::Environment& environment);

 private:
  int train();
  void write_row(const std::string& row);
  void claim_output_folder();
  std::filesystem::path claim_local_folder();
  void write_resolved_deck();
  void note_start();
  void restore_or_initialise();
  template <typename Load>
  void with_source(const Load& load);
  void initialise();
  void load_base();
  void hash_base();
  void tell_resumed(const checkpoint::Found& found);
  checkpoint::RunState describe() const;
  /// False: it was left in its midst, because some rank is to stop.
  bool step();
  void warn_of_saves();
  std::string arithmetic() const;
  void tell_memory();
  void tell_saved(const checkpoint::SaveReport& report, checkpoint::Level level);
  void validate(const char* when);
  void print_answers();
  bool is_validation_due() const;
  /// Why the run stops; `left` says so where a step was left for it.
  void tell_stop(bool by_signal, const std::string& left);
  /// What the ranks decide together between two steps. True: the run stops here.
  bool between_steps();
  /// The checkpoint that a run ends with. Returns whether there is one.
  bool save_last();
  int stopped(std::int64_t first, bool has_checkpoint);

  const Input& input_;
  const plan::Plan& plan_;
  const world::World& world_;
  std::unique_ptr<checkpoint::RunFolder> folder_;  ///< on the root
  std::filesystem::path local_root_;               ///< empty without a node-local level
  Corpus corpus_;
  State state_;
  TimeKeeper times_;
  Checkpoints checkpoints_;
  TimeLimit time_limit_;
  StopVote vote_;
  std::string run_id_;
  std::string base_hash_;  ///< of frozen weights; empty without any
  std::int64_t num_steps_ = 0;
  std::int64_t steps_done_ = 0;
  std::int64_t steps_of_start_ = 0;
  std::optional<double> validation_loss_;       ///< of the weights as they are
  checkpoint::Texts source_dtypes_;             ///< by tensor: how an export writes it
  std::optional<metrics::RecordFile> records_;  ///< on the root
  bool rows_are_lost_ = false;
  metrics::Progress progress_{metrics::Progress::Style::silent, 0, 1};
};

}  // namespace finetune::train
