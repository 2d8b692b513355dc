#pragma once
// SPDX-License-Identifier: Apache-2.0
// Several tasks that models are asked together.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tasks/requests.hpp"
#include "tasks/task.hpp"

namespace finetune::tasks {

struct AskedTask {
  Task task;
  std::vector<Question> questions;
};

/// Reads task files and their questions, of each the first `limit` (0: all). `data_folder`: see
/// Task::read. `where`: for the message about two tasks of one name. Throws: see Task::read and
/// questions_of; ErrorKind::input for two of one name.
std::vector<AskedTask> read_tasks(const std::vector<std::filesystem::path>& files,
                                  const std::filesystem::path& data_folder, std::int64_t limit,
                                  const std::string& where);

/// All that decides what models say, for a fingerprint: what was found out about one is nothing of
/// another. How answers are judged is not part of it: they are judged anew whenever they are read.
std::string text_of(const std::vector<AskedTask>& asked);

/// Whether any of them talks to a model by its chat template.
bool any_talks(const std::vector<AskedTask>& asked);

/// What a task measures, as "TASK/METRIC".
std::vector<std::string> measures_of(const Task& task);

}  // namespace finetune::tasks
