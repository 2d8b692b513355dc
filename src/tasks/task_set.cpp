// SPDX-License-Identifier: Apache-2.0
#include "tasks/task_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"
#include "tasks/metrics.hpp"

namespace finetune::tasks {

std::vector<AskedTask> read_tasks(const std::vector<std::filesystem::path>& files,
                                  const std::filesystem::path& data_folder, std::int64_t limit,
                                  const std::string& where) {
  std::vector<AskedTask> asked;
  for (const std::filesystem::path& file : files) {
    Task task = Task::read(file, data_folder);
    const auto is_same = [&](const AskedTask& other) { return other.task.name == task.name; };
    if (std::ranges::any_of(asked, is_same))
      core::fail(core::ErrorKind::input,
                 {where, fmt::format("two tasks are called {}", task.name),
                  "results are told apart by it", "Give one of them another task.name."});
    std::vector<Question> questions = questions_of(task, limit);
    asked.push_back({std::move(task), std::move(questions)});
  }
  return asked;
}

std::string text_of(const std::vector<AskedTask>& asked) {
  constexpr std::int64_t largest_bytes = std::int64_t{1} << 20;
  std::string text;
  for (const AskedTask& one : asked) {
    text += core::read_text(one.task.file, largest_bytes);
    for (const Question& question : one.questions) {
      text += question.prompt + question.answer;
      for (const std::string& each : question.prompts)
        text += each;
      for (const std::string& each : question.continuations)
        text += each;
    }
  }
  return text;
}

bool any_talks(const std::vector<AskedTask>& asked) {
  return std::ranges::any_of(asked, [](const AskedTask& one) { return one.task.uses_chat; });
}

std::vector<std::string> measures_of(const Task& task) {
  std::vector<std::string> measures;
  for (const std::string& metric : values_of(task))
    measures.push_back(task.name + "/" + metric);
  return measures;
}

}  // namespace finetune::tasks
