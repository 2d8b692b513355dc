#pragma once
// SPDX-License-Identifier: Apache-2.0
// What several models made of several tasks, side by side.

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "tasks/metrics.hpp"
#include "tasks/statistics.hpp"

namespace finetune::tasks {

/// What a model made of a question.
struct Judged {
  std::int64_t index = 0;  ///< of the question
  Values values = {};
  Parts parts = {};           ///< of metrics that count parts of answers instead of answers
  double log_likelihood = 0;  ///< of a text
  core::Json record = {};     ///< for people: prompt, answers, what was right
};

/// What a model made of a text: units that its log-likelihood is divided by.
struct Units {
  double tokens = 0, words = 0, bytes = 0;
};

/// Of one model and task.
struct Outcome {
  std::string model, task;
  std::vector<Judged> judged;
  std::vector<Units> units;  ///< of texts, one each
};

/// A figure of the table.
struct Figure {
  std::string model, task, metric;
  Estimate estimate;
  std::int64_t num_questions = 0;              ///< or parts of them, of metrics that count those
  std::int64_t num_better = 0, num_worse = 0;  ///< of these, against the first model
  double p = 1;           ///< of the difference to the first model, if there is none
  bool is_first = false;  ///< of the models of its task
  bool less_is_better = false;
};

/// All metrics of `outcomes`, which are ordered by task, then by model; the first model of a task
/// is what the others are compared with.
std::vector<Figure> figures_of(const std::vector<Outcome>& outcomes);

/// A table for a terminal: a line for each task and metric, a column for each model.
std::string table_of(const std::vector<Figure>& figures);

/// The same as JSON: {"figures": [{"task", "metric", "model", "value", "standard_error", "low",
/// "high", "questions", "better", "worse", "p"}]}.
core::Json json_of(const std::vector<Figure>& figures);

}  // namespace finetune::tasks
