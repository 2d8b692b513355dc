#pragma once
// SPDX-License-Identifier: Apache-2.0
// How a run begins: from the weights that its deck names, or from the checkpoint it goes on from.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/load/branch.hpp"
#include "checkpoint/load/find.hpp"
#include "checkpoint/load/load.hpp"
#include "checkpoint/run_state.hpp"
#include "train/corpus/corpus.hpp"
#include "train/input/input.hpp"
#include "train/run/detail/first_weights.hpp"
#include "train/run/detail/output_folder.hpp"
#include "train/run/detail/reporter.hpp"
#include "train/run/detail/resume.hpp"
#include "train/run/detail/state.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// Where a start stands before its first step, in addition to `State`.
struct StartingPoint {
  std::int64_t step = 0;                            ///< steps that are done
  std::optional<checkpoint::Level> level = {};      ///< of the checkpoint; none: a new run
  std::optional<double> validation_loss = {};       ///< of the weights as they are
  std::optional<checkpoint::Score> score = {};      ///< the same
  core::Json patience = {};                         ///< as Patience::to_json wrote it
  core::Json noise = {};                            ///< as NoiseKeeper::to_json wrote it
  checkpoint::Texts source_dtypes = {};             ///< by tensor: how an export writes it
  std::optional<checkpoint::FrozenBase> base = {};  ///< of frozen weights; none without any
  std::string run_id = {};
  checkpoint::Lineage lineage = {};                ///< on the root
  std::optional<std::int64_t> total_samples = {};  ///< trained on; none: not known
  std::optional<std::int64_t> total_tokens = {};   ///< the same
  ReportFiles files = {};
};

/// What of a run's input its beginning depends on.
struct ResumeInput {
  RunIdentity identity;
  checkpoint::CheckpointSettings checkpoint;
  FirstWeights weights;
  bool writes_events = false;  ///< for TensorBoard
  /// Whether a run with this Patience::to_json has ended early.
  std::function<bool(const core::Json&)> has_ended = {};
};
ResumeInput resume_input(const Input& input);

/// Fills the state of a run, once. Refers to everything it is made of.
class Resumer {
 public:
  /// `arithmetic`: how this start computes its products. `num_steps`: of the whole run.
  Resumer(ResumeInput input, const plan::Numbers& numbers, const world::World& world,
          const Corpus& corpus, std::string arithmetic, std::int64_t num_steps,
          OutputFolder& output, State& state);

  /// Loads the checkpoint that checkpoint.resume asks for and that fits this run, or the weights
  /// and adapter that the deck names where there is none; opens metrics.jsonl and a
  /// file of events behind it.
  /// Collective on the world. Throws: comm::AgreedError; see checkpoint::find_and_load,
  /// require_same_keys, require_same_run, require_same_base, require_adapter_base.
  StartingPoint restore_or_initialise();

 private:
  /// Reads what lies in the folder, and what checkpoint.resume means there.
  void read_branch();
  std::optional<checkpoint::FoundCheckpoint> find_and_load(checkpoint::LoadReport& report);
  void initialise();
  checkpoint::FrozenBase own_base() const;
  void hash_base();
  void restore(const checkpoint::FoundCheckpoint& found);
  void warn_of_other_results(const checkpoint::FoundCheckpoint& found) const;
  void begin_files();
  /// `read_s`: how long the start has taken so far.
  void continue_files(const checkpoint::FoundCheckpoint& found, std::int64_t bytes_read,
                      double read_s);
  /// The run's id, and the runs it comes from; on the root.
  checkpoint::Line take_line(const std::optional<checkpoint::FoundCheckpoint>& found);
  /// The run's id and its files. `read_s`: how long the start has taken so far.
  void continue_run(const std::optional<checkpoint::FoundCheckpoint>& found,
                    std::int64_t bytes_read, double read_s);

  ResumeInput input_;
  const plan::Numbers& numbers_;
  const world::World& world_;
  const Corpus& corpus_;
  std::string arithmetic_;
  std::int64_t num_steps_;
  OutputFolder& output_;
  State& state_;
  checkpoint::Branch branch_ = {};  ///< on the root, as it was before this start
  std::string resume_ = {};         ///< "auto", "never" or the name of a checkpoint
  std::string base_hash_;           ///< of frozen weights; empty without any
  StartingPoint start_;
};

}  // namespace finetune::train
