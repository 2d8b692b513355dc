#pragma once
// SPDX-License-Identifier: Apache-2.0
// The small files of an export that no source folder has: what the model is and how it came about.

#include <cstdint>
#include <filesystem>
#include <string>

#include "checkpoint/run_state.hpp"
#include "core/json.hpp"

namespace finetune::app {

/// The name of the model in `folder`, whose config.json is `config`: "org/name" where that is
/// known, otherwise what the folder is called. Never a path.
std::string base_model_name(const core::Json& config, const std::filesystem::path& folder);

/// What a run left beside its checkpoint that its model's card shows.
struct RunRecord {
  std::string evaluation;    ///< table of the tasks that this model was asked; empty: none
  std::string loss_svg;      ///< its curve; empty: none
  std::string weights = {};  ///< what of them is exported; empty: those that were trained
};
/// Of the checkpoint of this step in a run's folder. What is not there is empty.
RunRecord read_record(const std::filesystem::path& run, std::int64_t step);
inline constexpr const char* loss_picture_name = "loss.svg";
/// Hashes of an export's files, for `xxhsum -c`.
inline constexpr const char* sums_name = "XXH128SUMS";

/// README.md of a model made from `base_model`, from the `state` of its checkpoint: a stub that
/// its author completes. Names files without their folders. `library` loads it: transformers or
/// peft.
std::string model_card(const checkpoint::RunState& state, const std::string& base_model,
                       const RunRecord& record = {}, const std::string& library = "transformers");

/// generation_config.json of a model whose folder has none: the special tokens of its config.json.
std::string generation_config(const core::Json& config);

}  // namespace finetune::app
