#pragma once
// SPDX-License-Identifier: Apache-2.0
// The model's answers to held-out questions, for people to read.

#include <functional>
#include <vector>

#include "metrics/records.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/corpus/sources.hpp"
#include "train/input/settings.hpp"
#include "train/step/passes.hpp"

namespace finetune::train {

/// Prints prompt, answer and expected answer of `settings.answers` samples, spread evenly, and
/// returns them. `is_left`: asked in front of each, with the same answer on all ranks; those that
/// follow are not asked if it says so. Collective on the shards' fsdp.
std::vector<metrics::Answer> print_answers(const Engine& engine,
                                           const tokenizer::Tokenizer& tokenizer,
                                           const Questions& questions,
                                           const MetricsSettings& settings,
                                           const std::function<bool()>& is_left);

}  // namespace finetune::train
