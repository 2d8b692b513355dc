// SPDX-License-Identifier: Apache-2.0
#include "tasks/task.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/regex.hpp"
#include "deck/deck.hpp"
#include "deck/suggest.hpp"

namespace finetune::tasks {
namespace {

deck::Key key(std::string_view name, std::string_view sentence, bool required = false) {
  return {
      .name = name, .restart = deck::Restart::fixed, .sentence = sentence, .required = required};
}

void bind_task(deck::Table& table, Task& task, std::string& data) {
  table.choice(
      key("kind", "What the model is asked.", true), task.kind,
      {{"choices", Kind::choices}, {"generate", Kind::generate}, {"perplexity", Kind::perplexity}});
  table.text(key("name", "What the task is called. Empty: as its file."), task.name);
  table.text(key("data", "File of the questions: JSON, JSONL or Parquet.", true), data);
  table.text(key("prompt", "Template over a question's fields.", true), task.prompt);
  table.texts(key("choices", "Templates of the choices, or one that writes a JSON list."),
              task.choices);
  table.text(key("continuation", "Template of what follows the prompt, of a choice."),
             task.continuation);
  table.text(key("delimiter", "Between prompt and continuation."), task.delimiter);
  table.text(key("answer", "Template of the right choice's number, or of the right answer."),
             task.answer);
  table.text(key("description", "In front of everything."), task.description);
  table.boolean(key("chat", "Whether the prompt is what a user says to the model."),
                task.uses_chat);
  table.texts(key("metrics", "How answers are judged."), task.metrics);
}

void bind_generation(deck::Table& table, Generation& generation) {
  table.integer(key("max_tokens", "Longest answer."), generation.max_tokens,
                {.min = 1, .max = 1 << 20});
  table.texts(key("stops", "Texts that end an answer."), generation.stops);
  table.integer(key("samples", "Tries of each question."), generation.samples,
                {.min = 1, .max = 1000});
  table.real(key("temperature", "0: always the most likely token."), generation.temperature,
             {.min = 0.0});
  table.real(key("top_p", "Sample from tokens with this probability."), generation.top_p,
             {.min = 0.0, .max = 1.0});
  table.text(key("extract", "Regular expression of what counts of an answer."), generation.extract);
  table.choice(key("take", "Of several matches."), generation.take, {"first", "last"});
  table.texts(key("drop", "Regular expressions of what does not count."), generation.drop);
  table.boolean(key("ignore_case", "Whether capitals count as small letters."),
                generation.ignores_case);
  table.boolean(key("ignore_punctuation", "Whether punctuation counts."),
                generation.ignores_punctuation);
}

void require_kind(deck::Table& table, const Task& task) {
  if (task.kind == Kind::choices && task.choices.empty())
    table.problem("choices", "task.choices is missing", "the likeliest of them is the answer",
                  "Give them, or another task.kind.");
  const bool needs_answer =
      task.kind == Kind::choices ||
      (task.kind == Kind::generate && task.metrics != std::vector<std::string>{"json"});
  if (needs_answer && task.answer.empty())
    table.problem("answer", "task.answer is missing", "answers are compared with it", "Give it.");
  const std::vector<std::string>& known = metrics_of(task.kind);
  for (const std::string& metric : task.metrics)
    if (std::ranges::find(known, metric) == known.end())
      table.problem("metrics", fmt::format("task.metrics has \"{}\"", metric),
                    "tasks of this kind are not judged by that",
                    fmt::format("Use {}.", deck::list(known, "\"", "\"")));
}

/// Else a wrong one would be found when all answers are written.
void require_expressions(deck::Table& table, const Generation& generation) {
  const auto require = [&](std::string_view key, const std::string& pattern) {
    try {
      core::Regex(pattern, generation.ignores_case, fmt::format("generate.{}", key));
    } catch (const core::Error& error) {
      std::string problem = error.what();
      // The deck ends its problems itself.
      if (problem.ends_with('.')) problem.pop_back();
      table.problem(key, problem, "", "");
    }
  };
  if (!generation.extract.empty()) require("extract", generation.extract);
  for (const std::string& pattern : generation.drop)
    require("drop", pattern);
}

std::filesystem::path found(const std::string& name, const std::filesystem::path& beside,
                            const std::filesystem::path& data_folder, const std::string& file) {
  const std::filesystem::path path = (data_folder.empty() ? beside : data_folder) / name;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    core::fail(core::ErrorKind::input,
               {file, fmt::format("the data are not there: {}", path.string()),
                data_folder.empty() ? "they are looked for beside the task's file"
                                    : "they are looked for in the folder of --data",
                "Fetch them (inputs/tasks/README.md says where from), or name their folder by "
                "--data."});
  return path;
}

}  // namespace

const std::vector<std::string>& metrics_of(Kind kind) {
  static const std::vector<std::string> of_choices = {"accuracy", "accuracy_normalised",
                                                      "true_mass"};
  static const std::vector<std::string> of_answers = {
      "exact_match",      "numeric",      "f1",
      "rouge_l",          "contains",     "json",
      "prompt_strict",    "prompt_loose", "instruction_strict",
      "instruction_loose"};
  static const std::vector<std::string> of_texts = {"token_perplexity", "word_perplexity",
                                                    "byte_perplexity", "bits_per_byte"};
  return kind == Kind::choices ? of_choices : kind == Kind::generate ? of_answers : of_texts;
}

Task Task::read(const std::filesystem::path& file, const std::filesystem::path& data_folder) {
  constexpr std::int64_t largest_bytes = 1 << 20;
  Task task;
  task.file = file.string();
  task.name = file.stem().string();
  std::string data;
  deck::Deck deck(core::read_text(file, largest_bytes), task.file, {});
  deck::Table table = deck.table("task", "What is asked, and how it is judged.");
  bind_task(table, task, data);
  deck::Table few_shot = deck.table("few_shot", "Examples in front of each question.");
  few_shot.integer(key("count", "How many."), task.few_shot.count, {.min = 0, .max = 1000});
  few_shot.text(key("data", "Their file. Empty: that of the questions."), task.few_shot.data);
  few_shot.text(key("separator", "Behind each."), task.few_shot.separator);
  deck::Table generation = deck.table("generate", "How the model answers.");
  bind_generation(generation, task.generation);
  require_expressions(generation, task.generation);
  deck::Table perplexity = deck.table("perplexity", "How long texts are cut.");
  perplexity.integer(key("window", "Tokens at once. 0: as many as the model can."),
                     task.perplexity.window, {.min = 0, .max = 1 << 24});
  perplexity.integer(key("stride", "New tokens a window. 0: all but one."), task.perplexity.stride,
                     {.min = 0, .max = 1 << 24});
  require_kind(table, task);
  deck.finish();
  if (task.metrics.empty()) task.metrics = {metrics_of(task.kind).front()};
  const std::filesystem::path beside = file.parent_path();
  task.data = found(data, beside, data_folder, task.file);
  if (!task.few_shot.data.empty())
    task.few_shot.data = found(task.few_shot.data, beside, data_folder, task.file).string();
  return task;
}

}  // namespace finetune::tasks
