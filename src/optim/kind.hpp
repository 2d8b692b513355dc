#pragma once
// SPDX-License-Identifier: Apache-2.0
// What an optimizer provides; one descriptor each in modules/optimizers.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "deck/row.hpp"
#include "model/parameter_table.hpp"
#include "model/path.hpp"
#include "plan/optimizer.hpp"

namespace finetune::shard {
class ModelShards;
}

namespace finetune::optim {

class Optimizer;
struct OptimizerSettings;

/// A key of the table [optimizer] that an optimizer reads. Several may read one, with defaults and
/// sentences of their own; ranges are the same.
struct OptimizerKey {
  std::string_view name;
  double default_value = 0;
  deck::Range<double> range = {};
  std::string_view sentence;  ///< for the reference, without a full stop
};

/// How an optimizer is set up by whoever trains.
struct OptimizerSetup {
  core::DType moments = core::DType::f32;   ///< of states that name no dtype: Numbers::moments
  std::uint64_t seed = 0;                   ///< of stochastic rounding
  model::Path path = model::Path::kernels;  ///< composed: on a CPU what a GPU does
};

/// Weights to evaluate and to export, where they are not those that are trained:
/// weight + factor * (state - weight).
struct EvaluatedWeights {
  std::string state;  ///< of the footprint
  /// The same for all elements; not finite: the settings leave none.
  double (*factor)(const OptimizerSettings& settings) = nullptr;
};

/// Memory, time and saving are planned, checkpoints stored and verified, and restarts judged by
/// what it says; nothing else knows an optimizer by name.
struct Kind {
  /// Its name is the value of optimizer.name. Tensors of its states exist before the first step,
  /// all zeros.
  plan::OptimizerFootprint footprint;
  std::string sentence;  ///< about it, for the reference, without a full stop
  std::vector<OptimizerKey> keys = {};
  /// The one that learns almost the same in less memory, to be advised; empty: none.
  std::string in_less_memory = {};
  /// Usual learning rates as a multiple of AdamW's, which are the best known.
  double usual_lr = 1;
  bool has_lr_ratios = true;  ///< reads Parameter::lr_ratio
  /// Else the learning rate stays where a warm-up over optimizer.warmup_steps has brought it.
  bool has_schedule = true;
  /// From the first update on; none: those that are trained.
  std::optional<EvaluatedWeights> evaluated = {};
  /// Before the first step. Refers to `table`.
  std::unique_ptr<Optimizer> (*make)(const OptimizerSettings& settings,
                                     const model::ParameterTable& table,
                                     const shard::ModelShards& shards, const OptimizerSetup& setup);

  const std::string& name() const { return footprint.name; }
  bool reads(std::string_view key) const;
};

/// The kind that the deck calls `name`; nullptr: there is none.
const Kind* find_kind(const std::vector<Kind>& kinds, const std::string& name);

/// Kinds of checkpoint tensors of which no value is negative, for checkpoint::verify.
std::vector<std::string> unsigned_states(const std::vector<Kind>& kinds);

}  // namespace finetune::optim
