#pragma once
// SPDX-License-Identifier: Apache-2.0
// All settings of a run, and the model they name.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/settings.hpp"
#include "comm/communicator.hpp"
#include "core/problems.hpp"
#include "data/settings.hpp"
#include "model/adapter.hpp"
#include "model/family.hpp"
#include "model/quantization.hpp"
#include "optim/settings.hpp"
#include "plan/choice.hpp"
#include "plan/layout/settings.hpp"
#include "plan/plan.hpp"
#include "train/input/arithmetic.hpp"
#include "train/input/data_memory.hpp"
#include "train/input/evaluate_settings.hpp"
#include "train/input/registry.hpp"
#include "train/input/settings.hpp"

namespace finetune::train {

/// Which keys the plan chose that later starts are to keep: of [parallel], and train.micro_batch.
struct ChosenKeys {
  bool sharding = false;  ///< and dp_shard
  plan::OpenAxes axes;
  bool micro_batch = false;

  bool any() const { return sharding || axes.any() || micro_batch; }
};

struct Input {
  ModelSettings model;
  data::DataSettings data;
  model::AdapterSettings adapter;
  plan::ParallelSettings parallel;
  plan::PrecisionSettings precision;
  optim::OptimizerSettings optimizer;
  TrainSettings train;
  checkpoint::CheckpointSettings checkpoint;
  EvaluateSettings evaluate;
  MetricsSettings metrics;
  ProfileSettings profile;
  NcclTable nccl;

  std::filesystem::path deck_path;
  std::string resolved_deck;
  /// The same without a time limit: every start of a batch job has another, and is yet a start of
  /// the same run.
  std::string timeless_deck;
  std::vector<std::pair<std::string, std::string>>
      fixed_values;  ///< keys a restart must not change

  const model::ModelFamily* family = nullptr;  ///< points into the registry
  model::Architecture architecture;
  model::Quantization quantization;  ///< of the model's files
  /// With the adapter's rows, and what is frozen and packed marked.
  model::ParameterTable parameters;
  std::vector<plan::OtherTable> other_tables;  ///< with an adapter, where there is none
  std::optional<plan::OptimizerFootprint> lighter_optimizer;  ///< where there is one
  core::Json config_changes;  ///< of the model's config.json, for exports; null: none
  std::filesystem::path model_folder;
  std::int64_t first_new_id = 0;         ///< of model.add_tokens
  std::filesystem::path adapter_folder;  ///< of adapter.path; empty for a new adapter

  /// What was left to the plan, and has become what that chose (train/input/choices.hpp).
  ChosenKeys chosen;

  DataMemory data_memory;

  /// What the ranks agreed on; before that, and in a plan, what this process would do.
  std::optional<Arithmetic> arithmetic;

  bool is_adapted() const { return adapter.exists(); }
  plan::Numbers numbers() const;
  plan::PlanInput plan_input(const plan::Ranks& ranks) const;
};

/// Looks at what a command needs in addition. `is_known`: the model could be described, and
/// what is trained of it.
/// Collective on `world`, and the same problems on every rank.
using AlsoCheck = std::function<void(const comm::Communicator& world, const Input& input,
                                     bool is_known, core::Problems& problems)>;

/// Reads a deck and the config.json it names. The root reads files; everybody gets the text and
/// parses it. Collective on `world`. Throws: comm::AgreedError; of a deck whose keys are in order
/// with all that is wrong with its model and with what `also` looks at.
Input read(const comm::Communicator& world, const std::filesystem::path& deck_path,
           const std::vector<std::string>& overrides, const Registry& registry,
           const AlsoCheck& also = {});

/// Whether metrics.noise_steps can be measured: micro-batches are computed by one rank each, and
/// are several per step. What is open (0) may be. Throws: ErrorKind::deck.
void require_measurable_noise(const Input& input);

/// The annotated deck with every key: what `finetune --reference` prints.
std::string reference_deck(const Registry& registry);

/// A path from the deck: as it is if it is absolute or exists from the current folder, otherwise
/// next to the deck if it exists there.
std::filesystem::path resolve(const std::filesystem::path& path,
                              const std::filesystem::path& deck_path);

/// The format that the deck calls `name`.
const data::Format& format_named(const std::string& name, const Registry& registry);

}  // namespace finetune::train
