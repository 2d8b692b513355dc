#pragma once
// SPDX-License-Identifier: Apache-2.0
// The deck's table [evaluate].

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "deck/deck.hpp"

namespace finetune::train {

struct EvaluateSettings {
  std::vector<std::string> tasks;  ///< files
  std::string folder;
  std::int64_t steps = 0;
  double epochs = 0;
  std::int64_t limit = 0;
  std::int64_t batch = 16;
  std::int64_t batch_tokens = 2048;
  std::int64_t seed = 0;

  void bind(deck::Table& table);

  bool has_tasks() const { return !tasks.empty(); }
  bool asks_in_training() const { return has_tasks() && (steps > 0 || epochs > 0); }
};

/// Files and folder as `resolve` finds them beside the deck.
std::vector<std::filesystem::path> task_files(const EvaluateSettings& settings,
                                              const std::filesystem::path& deck_path);
std::filesystem::path task_data(const EvaluateSettings& settings,
                                const std::filesystem::path& deck_path);

struct Input;

/// Refuses a checkpoint.best_by that nothing measures, and early stopping that would wait for ever.
/// Reads the task files, not their data. Throws: ErrorKind::deck; see tasks::Task::read.
void require_measured(const Input& input);

}  // namespace finetune::train
