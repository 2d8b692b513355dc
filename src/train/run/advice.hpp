#pragma once
// SPDX-License-Identifier: Apache-2.0
// Warnings about settings that are valid and often do harm, each with its remedy.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/tokens/report.hpp"
#include "train/input/input.hpp"

namespace finetune::train {

/// A learning rate for all weights with an adapter, or the other way round. Models that begin at
/// random, and small ones, take larger rates than this knows of.
std::vector<std::string> advice_on_lr(const Input& input);

/// More than 1 % of the samples of a data set lose their ends. `name`: "training data".
std::optional<std::string> advice_on_cuts(const data::DataReport& report, const std::string& name,
                                          std::int64_t max_seq_length);

/// A run of hours that saves nothing before its end. `step_s`: seconds of a usual step.
std::optional<std::string> advice_on_saves(const checkpoint::CheckpointSettings& settings,
                                           double step_s, std::int64_t steps_left,
                                           std::int64_t steps_per_epoch);

/// A batch that takes more sequences than an epoch has. Throws: ErrorKind::deck if it is no small
/// one: nobody means it. Else what to say, if anything.
std::optional<std::string> advice_on_epoch(std::int64_t global_batch, std::int64_t epoch_size,
                                           const std::filesystem::path& deck_path);

}  // namespace finetune::train
