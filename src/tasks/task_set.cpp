// SPDX-License-Identifier: Apache-2.0
#include "tasks/task_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
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
  std::string text;
  // Each with its length: no two lists of texts are the same text.
  const auto add = [&](const std::vector<std::string>& parts) {
    text += fmt::format("{}\n", parts.size());
    for (const std::string& part : parts)
      text += fmt::format("{} {}\n", part.size(), part);
  };
  for (const AskedTask& one : asked) {
    const Generation& how = one.task.generation;
    add({one.task.name});
    add(how.stops);
    text +=
        fmt::format("{} {} {} {} {} {} {} {} {}\n", static_cast<int>(one.task.kind),
                    one.task.uses_chat, how.max_tokens, how.samples, how.temperature, how.top_p,
                    one.task.perplexity.window, one.task.perplexity.stride, one.questions.size());
    for (const Question& question : one.questions) {
      add({question.prompt});
      add(question.prompts);
      add(question.continuations);
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
