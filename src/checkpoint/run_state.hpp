#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a checkpoint says about its run in addition to tensors: state.json, whose fields are named
// here and nowhere else.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "checkpoint/lineage.hpp"
#include "core/json.hpp"

namespace finetune::checkpoint {

using Texts = std::map<std::string, std::string>;

/// What the frozen weights of a run are known by. A text is empty where it is not known.
struct FrozenBase {
  std::string hash = {};
  std::string dtype = {};    ///< in which they were computed with and hashed
  std::string packing = {};  ///< how they are kept: earlier versions did not say

  /// What `to_json` wrote. Anything else in `json` counts as not known.
  static FrozenBase from_json(const core::Json& json);
  core::Json to_json() const;
};

/// The adapter that a run trained. What a file lacks is empty; `require` says so.
struct AdapterState {
  std::string name = {};      ///< of the module
  bool double_quant = false;  ///< of frozen weights in 4 bits
  core::Json config = {};     ///< adapter_config.json as PEFT has it
  std::string unusable = {};  ///< the first field that is missing or something else; empty: none

  static AdapterState from_json(const core::Json& json);
  core::Json to_json() const;
  /// Checks that a file said all of it. Throws: ErrorKind::input naming `where` and the field.
  void require(const std::filesystem::path& where) const;
};

/// The score of runs that name no other.
inline constexpr const char* validation_loss_name = "validation_loss";
inline constexpr const char* exact_match_name = "exact_match";

/// What says how good weights are: of two, which are better.
struct Score {
  std::string name = {};  ///< "validation_loss", "exact_match" or "TASK/METRIC"
  double value = 0;
  bool less_is_better = true;
  std::string unusable = {};  ///< the first field that is missing or something else; empty: none

  static Score from_json(const core::Json& json);
  core::Json to_json() const;
  bool is_usable() const;
  /// Of the same name. What is equal is not better.
  bool is_better_than(const Score& other) const;
};

/// Everything but tensors that a restart or an export needs. Learning rate and data position follow
/// from the step. Optional fields came with later versions, or are not of every run.
struct RunState {
  std::int64_t step = 0;
  std::int64_t metrics_bytes = 0;     ///< of metrics.jsonl; what comes later belongs to lost steps
  std::string data_fingerprint = {};  ///< of tokens, and of which are trained
  std::optional<std::string> data_tokens = {};  ///< of the tokens alone
  Texts source_dtypes = {};                     ///< tensor name -> dtype of the file it came from
  core::Json loss_scale = {};                   ///< null where the precision needs none
  std::optional<std::int64_t> threads = {};     ///< of a rank
  std::optional<std::string> arithmetic = {};   ///< how its products are computed
  std::optional<std::string> run_id = {};
  std::optional<Lineage> lineage = {};             ///< of the run, from the runs before it
  std::optional<double> validation_loss = {};      ///< of these very weights
  std::optional<Score> score = {};                 ///< likewise, by what checkpoint.best_by names
  std::optional<core::Json> patience = {};         ///< of early stopping
  std::optional<core::Json> noise = {};            ///< of gradients, smoothed over steps
  std::optional<std::int64_t> total_samples = {};  ///< trained on in all steps so far
  std::optional<std::int64_t> total_tokens = {};   ///< the same
  std::optional<FrozenBase> base = {};             ///< of frozen weights; none without any
  std::string model_folder = {};                   ///< of the model that the run began with
  Texts fixed = {};                                ///< deck keys that a restart must not change
  std::string deck = {};                           ///< with every key
  std::string build = {};
  std::optional<std::string> precision = {};
  std::optional<std::string> bucket = {};  ///< where blocks of moments follow it
  std::optional<std::string> parts = {};   ///< ranks of tp and ep, where blocks of moments do
  std::optional<std::string> rounding = {};
  std::optional<AdapterState> adapter = {};
  std::optional<core::Json> config = {};  ///< what config.json of an export says in addition

  /// The first field that a restart needs and that is missing or something else; empty: none.
  std::string unusable = {};

  /// Reads what is there; state.json comes from a file, and null is as good as an empty object.
  static RunState from_json(const core::Json& json);
  core::Json to_json() const;

  /// The run that saved it; of versions that gave no id, "" as the others of them.
  Line line() const { return {run_id.value_or(""), lineage.value_or(Lineage())}; }

  /// What tells these weights from others of the run: `score`, or the validation loss of earlier
  /// versions and of runs that measure nothing else. Nothing if none was measured.
  std::optional<Score> measured() const;

  /// Checks that there was what a restart needs, in its types.
  /// Throws: ErrorKind::input naming `where` and the field.
  void require(const std::filesystem::path& where) const;
};

}  // namespace finetune::checkpoint
