#pragma once
// SPDX-License-Identifier: Apache-2.0
// How a model's texts are to be chosen, as its generation_config.json says.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "train/infer/sampling.hpp"

namespace finetune::train {

/// What a file, a line of it or a command says of sampling; nothing: whatever applies otherwise.
struct SamplingValues {
  std::optional<double> temperature = {};
  std::optional<std::int64_t> top_k = {};
  std::optional<double> top_p = {};
  std::optional<double> min_p = {};
  std::optional<double> repetition_penalty = {};
};

/// A number of `object` from `low` to `high`; nothing where the key is absent or null. Throws:
/// ErrorKind::input beginning with `where`.
std::optional<double> read_number(const core::Json& object, const char* key, double low,
                                  double high, const std::string& where);

/// The keys temperature, top_k, top_p, min_p and repetition_penalty. Throws: ErrorKind::input.
SamplingValues read_sampling(const core::Json& object, const std::string& where);

/// What is said takes the place of what `sampling` has.
void apply(const SamplingValues& said, Sampling& sampling);

/// Of transformers' GenerationConfig.
struct GenerationConfig {
  std::optional<bool> samples = {};  ///< do_sample
  SamplingValues values = {};
  std::vector<std::int32_t> end_ids = {};  ///< eos_token_id, one or several
};

/// Of the file generation_config.json in a model's folder; nothing is said where there is none.
/// Throws: ErrorKind::input for values of other types, or out of range.
GenerationConfig read_generation_config(const std::filesystem::path& model_folder);

struct ChosenSampling {
  Sampling sampling = {};  ///< with the ids that end a text in `stop`
  std::string note;        ///< what the file decides, for the log; empty: nothing
};

/// `said` by a command, else the file's: temperature, top-k, top-p and min-p where it sets
/// do_sample, its penalty always. Without do_sample the likeliest token is taken.
ChosenSampling choose_sampling(const SamplingValues& said, const GenerationConfig& config);

}  // namespace finetune::train
