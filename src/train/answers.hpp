#pragma once
// SPDX-License-Identifier: Apache-2.0
// The model's answers to held-out questions, for people to read.

#include "data/format.hpp"
#include "data/tokenizer.hpp"
#include "train/passes.hpp"
#include "train/settings.hpp"

namespace finetune::train {

/// Prints prompt, answer and expected answer of the first `settings.answers` samples, spread
/// evenly. Collective on the shards' fsdp.
void print_answers(const Engine& engine, const data::Tokenizer& tokenizer,
                   const data::Reader& questions, const MetricsSettings& settings);

}  // namespace finetune::train
