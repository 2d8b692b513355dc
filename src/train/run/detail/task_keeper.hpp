#pragma once
// SPDX-License-Identifier: Apache-2.0
// The tasks of the deck's table [evaluate]: when a run's model is asked them, and where results go.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "data/text/chat_template.hpp"
#include "metrics/records.hpp"
#include "tasks/progress.hpp"
#include "tasks/results.hpp"
#include "tasks/task_set.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/input/evaluate_settings.hpp"
#include "train/input/input.hpp"
#include "train/step/passes.hpp"

namespace finetune::train {

/// What the model of a step made of the tasks.
struct TaskResult {
  std::string table;  ///< beside the model of step 0
  std::vector<tasks::Figure> figures;
};

/// Results of the model of step N are in OUTPUT/evaluations/step-N, as `finetune evaluate` writes
/// them. Those of step 0 keep what was found out, so that later ones stand beside them question by
/// question. What cannot be written is a warning. All functions are collective on the world; they
/// throw AgreedError.
class TaskKeeper {
 public:
  static constexpr const char* folder_name = "evaluations";

  /// Reads tasks and questions. `tokenizer` outlives it.
  TaskKeeper(const Input& input, const Registry& registry, const comm::Communicator& world,
             const tokenizer::Tokenizer& tokenizer, const std::filesystem::path& output);

  /// A start from `step` of the run with this id: results of later steps are no longer true, and
  /// those of another run are set aside.
  void start_from(std::int64_t step, const std::string& run_id);

  bool has_tasks() const { return settings_.has_tasks(); }
  /// Whether the model of this step was asked some of it, and then the run was stopped.
  bool is_unfinished(std::int64_t step) const;

  /// Asks the model as it is after `step` steps. Nothing if it was stopped: `should_stop` is the
  /// same on all ranks, and asked as often on each.
  std::optional<TaskResult> ask(const Engine& engine, std::int64_t step,
                                const std::function<bool()>& should_stop) const;

 private:
  std::filesystem::path folder_of(std::int64_t step) const;
  std::string fingerprint_of(std::int64_t step) const;
  std::optional<std::vector<tasks::Outcome>> outcomes(
      const Engine& engine, std::int64_t step, tasks::Progress& progress,
      const std::function<bool()>& should_stop) const;
  std::vector<tasks::Outcome> beside_first(const Engine& engine,
                                           std::vector<tasks::Outcome> own) const;

  const EvaluateSettings& settings_;
  comm::Communicator world_;
  const tokenizer::Tokenizer& tokenizer_;
  std::filesystem::path root_;
  std::vector<tasks::AskedTask> tasks_;
  std::optional<data::ChatTemplate> chat_;  ///< none: no task talks
  std::string asked_;                       ///< all that decides the results, but for the weights
  std::string run_id_;
};

/// The figures as rows of metrics.jsonl have them.
metrics::EvaluationRecord record_of(std::int64_t step, const TaskResult& result);

}  // namespace finetune::train
