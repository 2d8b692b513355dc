// SPDX-License-Identifier: Apache-2.0
#include "train/input/evaluate_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "checkpoint/run_state.hpp"
#include "core/error.hpp"
#include "deck/exclusive.hpp"
#include "tasks/task_set.hpp"
#include "train/input/input.hpp"

namespace finetune::train {

using deck::Restart;

namespace {

/// What a validation measures.
constexpr const char* of_validation[] = {checkpoint::validation_loss_name,
                                         checkpoint::exact_match_name};

}  // namespace

void EvaluateSettings::bind(deck::Table& table) {
  table.texts({.name = "tasks",
               .restart = Restart::free,
               .sentence = "Task files (inputs/tasks/README.md) that the model is asked before and "
                           "after training; each result stands beside that of the first."},
              tasks);
  table.text({.name = "folder",
              .restart = Restart::free,
              .sentence = "Folder of the tasks' data; empty: beside each task file."},
             folder);
  table.integer({.name = "steps",
                 .restart = Restart::free,
                 .sentence = "Ask every so many steps, in addition to before the first and after "
                             "the last; 0: only then.",
                 .unit = "steps"},
                steps, {.min = 0});
  table.real({.name = "epochs",
              .restart = Restart::free,
              .sentence = "The same in passes over the training data, such as 0.5 or 1; 0: as "
                          "steps says.",
              .unit = "epochs"},
             epochs, {.min = 0});
  table.integer({.name = "limit",
                 .restart = Restart::free,
                 .sentence = "So many questions of each task, the first ones; 0: all.",
                 .unit = "questions"},
                limit, {.min = 0});
  table.integer({.name = "batch",
                 .restart = Restart::free,
                 .sentence = "Answers that a rank writes at once.",
                 .unit = "answers"},
                batch, {.min = 1, .max = 4096});
  table.integer({.name = "batch_tokens",
                 .restart = Restart::free,
                 .sentence = "Tokens in one pass where likelihoods are computed, unless one text "
                             "has more.",
                 .unit = "tokens"},
                batch_tokens, {.min = 1, .max = std::int64_t{1} << 24});
  table.integer({.name = "seed",
                 .restart = Restart::free,
                 .sentence = "Seed of answers that a task samples."},
                seed, {.min = 0});
  deck::refuse_both(table, "steps", steps > 0, "epochs", epochs > 0);
  if (!has_tasks() && (steps > 0 || epochs > 0 || limit > 0 || !folder.empty()))
    table.problem(steps > 0    ? "steps"
                  : epochs > 0 ? "epochs"
                  : limit > 0  ? "limit"
                               : "folder",
                  "evaluate.tasks names no task", "nothing is asked",
                  "Name task files, for example tasks = [\"inputs/tasks/gsm8k.toml\"], or remove "
                  "the key.");
}

std::vector<std::filesystem::path> task_files(const EvaluateSettings& settings,
                                              const std::filesystem::path& deck_path) {
  std::vector<std::filesystem::path> files;
  for (const std::string& file : settings.tasks)
    files.push_back(resolve(file, deck_path));
  return files;
}

std::filesystem::path task_data(const EvaluateSettings& settings,
                                const std::filesystem::path& deck_path) {
  return settings.folder.empty() ? std::filesystem::path() : resolve(settings.folder, deck_path);
}

void require_measured(const Input& input) {
  const std::string deck = input.deck_path.string();
  const std::string& best_by = input.checkpoint.best_by;
  const bool is_of_validation =
      std::ranges::find(of_validation, best_by) != std::end(of_validation);
  std::vector<std::string> measures(std::begin(of_validation), std::end(of_validation));
  for (const std::filesystem::path& file : task_files(input.evaluate, input.deck_path)) {
    const auto of_task =
        tasks::measures_of(tasks::Task::read(file, task_data(input.evaluate, input.deck_path)));
    measures.insert(measures.end(), of_task.begin(), of_task.end());
  }
  if (std::ranges::find(measures, best_by) == measures.end())
    core::fail(core::ErrorKind::deck,
               {deck, fmt::format("checkpoint.best_by = \"{}\"", best_by),
                fmt::format("what is measured: {}", fmt::join(measures, ", ")),
                "Name one of these, or a task in evaluate.tasks that measures it."});
  if (input.train.early_stopping_patience == 0) return;
  const bool validates = !input.data.validation_paths.empty() || input.data.validation_fraction > 0;
  if (is_of_validation && (!input.train.validates_in_training() || !validates))
    core::fail(
        core::ErrorKind::deck,
        {deck,
         fmt::format("train.early_stopping_patience = {}, but {} is not measured in training",
                     input.train.early_stopping_patience, best_by),
         "a run stops when it has not become better for a while",
         validates ? "Set train.validate_steps or validate_epochs."
                   : "Set train.validate_steps or validate_epochs, and data.validation_path or "
                     "data.validation_fraction."});
  if (!is_of_validation && !input.evaluate.asks_in_training())
    core::fail(
        core::ErrorKind::deck,
        {deck,
         fmt::format("train.early_stopping_patience = {}, but {} is not measured in training",
                     input.train.early_stopping_patience, best_by),
         "a run stops when it has not become better for a while",
         "Set evaluate.steps or evaluate.epochs."});
}

}  // namespace finetune::train
