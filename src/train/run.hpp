#pragma once
// SPDX-License-Identifier: Apache-2.0
// A training run from its first line to its last checkpoint.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/clock.hpp"
#include "metrics/progress.hpp"
#include "metrics/records.hpp"
#include "train/corpus.hpp"
#include "train/evaluate.hpp"
#include "train/input.hpp"
#include "train/state.hpp"
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

  /// Trains to the end. Returns core::exit_done, or core::exit_resubmit if train.stop_after_steps
  /// or a signal to any rank ended it earlier with a checkpoint.
  int loop();

 private:
  void make_output_folder();
  void write_resolved_deck();
  void restore_or_initialise();
  void initialise();
  core::Json describe() const;
  void step();
  void tell_memory();
  void save();
  void validate(const char* when);
  void print_answers();
  bool is_save_due() const;
  bool any_rank_is_asked_to_stop() const;

  const Input& input_;
  const plan::Plan& plan_;
  const world::World& world_;
  Corpus corpus_;
  State state_;
  TimeKeeper times_;
  std::int64_t num_steps_ = 0;
  std::int64_t steps_done_ = 0;
  std::int64_t last_saved_ = -1;
  core::Json source_dtypes_ = core::Json::object();  ///< by tensor: how an export writes it
  std::optional<metrics::RecordFile> records_;       ///< on the root
  metrics::Progress progress_{metrics::Progress::Style::silent, 0, 1};
};

}  // namespace finetune::train
