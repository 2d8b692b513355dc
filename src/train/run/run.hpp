#pragma once
// SPDX-License-Identifier: Apache-2.0
// A training run from its first line to its last checkpoint.

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/run_state.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/environment.hpp"
#include "data/steps/ahead.hpp"
#include "train/corpus/corpus.hpp"
#include "train/input/input.hpp"
#include "train/run/detail/checkpoints.hpp"
#include "train/run/detail/device_keeper.hpp"
#include "train/run/detail/link_keeper.hpp"
#include "train/run/detail/loss_guard.hpp"
#include "train/run/detail/noise_keeper.hpp"
#include "train/run/detail/output_folder.hpp"
#include "train/run/detail/page_writer.hpp"
#include "train/run/detail/patience.hpp"
#include "train/run/detail/profiler.hpp"
#include "train/run/detail/reporter.hpp"
#include "train/run/detail/resumer.hpp"
#include "train/run/detail/start_notes.hpp"
#include "train/run/detail/state.hpp"
#include "train/run/detail/tally.hpp"
#include "train/run/detail/task_keeper.hpp"
#include "train/run/detail/time_keeper.hpp"
#include "train/run/stop.hpp"
#include "train/run/stop_vote.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// The loop over steps, and what happens between them. Its parts are made in the order of its
/// members, restored if a checkpoint is there. All public functions are collective on the world.
class Run {
 public:
  /// Throws: comm::AgreedError; see OutputFolder, load_corpus, Resumer.
  Run(const Input& input, const plan::Plan& plan, const world::World& world,
      const shard::Groups& groups, const Registry& registry);

  /// Trains to the end. Returns core::exit_done, or if train.stop_after_steps, train.max_seconds or
  /// a signal to any rank ended it earlier core::exit_resubmit with a new checkpoint and
  /// core::exit_resubmit_older with an older one.
  /// What a rank throws alone is reported, and the job aborted, before anything is cleaned up: the
  /// other ranks wait for it.
  int loop(const comm::Environment& environment);

 private:
  int train(const comm::Topology& topology);
  void train_steps();
  /// False: it was left in its midst, because some rank is to stop.
  bool step();
  /// False: the run stops in its midst.
  bool validate(const std::string& when);
  /// Whether the checkpoint that this start goes on from was saved without the validation that is
  /// due at its step, as that was left. Collective.
  bool misses_validation() const;
  /// Steps that were not skipped.
  std::int64_t num_updates() const;
  /// f(), with the weights to evaluate in the place of those that are trained, if the optimizer
  /// has such.
  template <typename F>
  auto with_evaluated_weights(const F& f);
  /// Asks the tasks of [evaluate]. False: the run stops in its midst.
  bool evaluate_tasks(const std::string& when);
  /// What checkpoint.best_by names was measured, or not: for checkpoints and early stopping.
  void note_score();
  bool is_finished() const { return steps_done_ >= num_steps_ || patience_.is_lost(); }
  /// False: the run stops in its midst.
  bool print_answers();
  bool is_validation_due() const;
  bool is_evaluation_due() const;
  /// Whether the last step ended another `epochs` of the training data.
  bool ends_interval(double epochs) const;
  /// Before the first step of this start; `misses_validation`, `asks`: what the last one left.
  void measure_first(bool misses_validation, bool asks);
  void measure_last();
  /// What the ranks decide together between two steps. True: the run stops here.
  bool between_steps();
  /// The checkpoint that a run ends with. Returns whether there is one.
  bool save_last();
  int end_finished(double train_s);
  int end_stopped(bool has_checkpoint);
  /// Why a finished run is.
  std::string end_reason() const;
  /// Every start ends here, whatever ended it: starts.jsonl, events and report say so. Returns the
  /// code. Not collective.
  int end(int code, const std::string& reason);

  checkpoint::RunState describe() const;
  void saved(const checkpoint::SaveReport& report, checkpoint::Level level);
  void warn_of_saves();
  /// Of a learning rate that does not go on where it was.
  void warn_of_lr() const;
  /// Warns of a loss that has exploded, or ends the run if the deck says so.
  void look_at_loss(double loss);
  /// Whether a signal or the time asks some rank to stop; [0] says a signal. Collective.
  std::array<bool, 2> stops_are_asked() const;
  /// Why the run stops; `left` says so where a step was left for it.
  void report_stop(bool by_signal, const std::string& left);
  metrics::PeakBytes own_peak();
  /// Of time and memory, in all steps of this start.
  void report_use();

  const Input& input_;
  const plan::Plan& plan_;
  const world::World& world_;
  std::string arithmetic_;  ///< how products are computed
  OutputFolder output_;     ///< before the data: who cannot write should hear it at once
  Corpus corpus_;
  Profiler profiler_;  ///< before tensors that it is to know
  State state_;
  TimeKeeper times_;
  DeviceKeeper devices_;
  LinkKeeper links_;
  Checkpoints checkpoints_;
  TimeLimit time_limit_;
  StopVote vote_;
  std::int64_t num_steps_;
  StartingPoint start_;
  TaskKeeper tasks_;
  Patience patience_;
  NoiseKeeper noise_;
  LossGuard loss_guard_;
  data::StepsAhead ahead_;
  Reporter reporter_;
  StartNotes starts_;
  PageWriter page_;
  Tally tally_;
  std::int64_t steps_done_;
  std::string stop_reason_ = "train.stop_after_steps are done";  ///< unless something else asks
  /// Of the weights as they are.
  std::optional<double> validation_loss_;
  std::optional<double> exact_match_;
  std::optional<TaskResult> task_result_;
  std::optional<checkpoint::Score> score_;

  double evaluated_s_ = 0;   ///< since the last step, by what can be left at any time
  bool is_stopped_ = false;  ///< in the midst of what is measured
};

}  // namespace finetune::train
