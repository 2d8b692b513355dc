#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model is asked the questions of a task.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/text/chat_template.hpp"
#include "tasks/progress.hpp"
#include "tasks/results.hpp"
#include "tasks/task.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/step/passes.hpp"

namespace finetune::train {

struct AskOptions {
  std::int64_t batch_tokens = 2048;  ///< of log-likelihoods, in one pass
  std::int64_t batch = 16;           ///< answers that a rank writes at once
  std::uint64_t seed = 0;            ///< of answers that are sampled
  std::function<bool()> should_stop = {};
};

/// Who is asked. Nothing is owned.
struct Asked {
  const Engine& engine;
  const tokenizer::Tokenizer& tokenizer;
  std::string name;                             ///< of the model, in results and progress
  std::optional<data::ChatTemplate> chat = {};  ///< of tasks that talk to it
};

/// Nothing if it was stopped: what was found out is in `progress`. The same on every rank, and on
/// any number of ranks (generated texts: but for how a product of several rows rounds). Collective
/// on fsdp and dp_replicate; ranks of tp pass the same. Throws: ErrorKind::input for a question
/// that the model cannot be asked.
std::optional<tasks::Outcome> run_task(const Asked& asked, const tasks::Task& task,
                                       const std::vector<tasks::Question>& questions,
                                       tasks::Progress& progress, const AskOptions& options);

}  // namespace finetune::train
