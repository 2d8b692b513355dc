// SPDX-License-Identifier: Apache-2.0
#include "tasks/requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/records.hpp"
#include "data/text/prompt.hpp"
#include "data/text/record_template.hpp"
#include "jinja/template.hpp"
#include "tasks/detail/instructions.hpp"
#include "tasks/metrics.hpp"

namespace finetune::tasks {
namespace {

using data::RecordTemplate;

/// What one record becomes, without examples.
class Asker {
 public:
  explicit Asker(const Task& task)
      : task_(task),
        prompt_(task.prompt, "task.prompt", task.file),
        continuation_(task.continuation, "task.continuation", task.file),
        answer_(task.answer, "task.answer", task.file),
        is_of_instructions_(std::ranges::any_of(task.metrics, is_of_instructions)) {
    for (const std::string& choice : task.choices)
      choices_.emplace_back(choice, "task.choices", task.file);
  }

  Question ask(const data::Records& records, std::int64_t i) const {
    const std::string where = records.where(i);
    jinja::Mapping names = data::names_of(records.object(i));
    Question question{.index = i, .prompt = {}};
    if (task_.kind != Kind::choices) {
      question.prompt = prompt_.write(names, where);
      if (task_.kind == Kind::perplexity && question.prompt.empty())
        core::fail(core::ErrorKind::input,
                   {where, "task.prompt writes no text", "its likelihood is that of its tokens",
                    "Take the record out, or correct the template."});
      question.answer = answer_.write(names, where);
      if (is_of_instructions_)
        question.has_something_asked = !Instructions::read(question.answer, where).empty();
      return question;
    }
    question.choices = choices_of(names, where);
    for (std::size_t c = 0; c < question.choices.size(); ++c) {
      names.set("choice", question.choices[c]);
      names.set("index", static_cast<std::int64_t>(c));
      question.prompts.push_back(prompt_.write(names, where));
      question.continuations.push_back(task_.delimiter + continuation_.write(names, where));
    }
    names.set("choices_written", strings(question.choices));
    read_right(answer_.write(names, where), where, question);
    return question;
  }

  /// A question with its answer.
  std::string example(const Question& question) const {
    if (task_.kind != Kind::choices) return question.prompt + task_.delimiter + question.answer;
    const auto right = static_cast<std::size_t>(question.right);
    return question.prompts[right] + question.continuations[right];
  }

 private:
  std::vector<std::string> choices_of(const jinja::Mapping& names, const std::string& where) const {
    std::vector<std::string> written;
    for (const RecordTemplate& choice : choices_)
      written.push_back(choice.write(names, where));
    if (written.size() == 1) {
      const auto list = nlohmann::json::parse(written[0], nullptr, false);
      const bool is_list = list.is_array() && std::ranges::all_of(list, [](const auto& each) {
                             return each.is_string();
                           });
      if (!is_list)
        core::fail(core::ErrorKind::input,
                   {where, "task.choices does not write a JSON list of texts",
                    fmt::format("it is the only one, and writes: {}",
                                core::one_line(core::first_bytes(written[0], 80))),
                    "Write {{ field | tojson }}, or give several templates."});
      written = list.get<std::vector<std::string>>();
    }
    if (written.size() < 2)
      core::fail(core::ErrorKind::input,
                 {where, fmt::format("there are {} choices", written.size()),
                  "one of them is to be chosen", "Correct the question."});
    return written;
  }

  /// A number, or a JSON list of 0 and 1 where several may be right.
  void read_right(const std::string& text, const std::string& where, Question& question) const {
    const auto count = std::ssize(question.choices);
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_array() && std::ssize(json) == count) {
      for (const auto& each : json) {
        if (!each.is_number_integer()) break;
        question.all_right.push_back(each.get<std::int64_t>() != 0);
      }
      const auto first = std::ranges::find(question.all_right, 1);
      if (std::ssize(question.all_right) == count && first != question.all_right.end())
        question.right = first - question.all_right.begin();
    } else if (json.is_number_integer()) {
      question.right = json.get<std::int64_t>();
    }
    if (question.right < 0 || question.right >= count)
      core::fail(
          core::ErrorKind::input,
          {where, fmt::format("the right choice is \"{}\"", core::one_line(core::trimmed(text))),
           fmt::format("it is a number from 0 to {}, or a list of {} times 0 or 1", count - 1,
                       count),
           "Correct task.answer, or the question."});
  }

  static jinja::Value strings(const std::vector<std::string>& texts) {
    std::vector<jinja::Value> values(texts.begin(), texts.end());
    return values;
  }

  const Task& task_;
  RecordTemplate prompt_, continuation_, answer_;
  bool is_of_instructions_;
  std::vector<RecordTemplate> choices_;
};

/// Description and examples, which differ where questions and examples come from one file.
class Preface {
 public:
  Preface(const Task& task, const Asker& asker, const data::Records& records) : task_(task) {
    if (task.few_shot.count == 0) return;
    const bool is_same = task.few_shot.data.empty();
    const auto own = is_same ? nullptr : data::open_records(task.few_shot.data);
    const data::Records& from = is_same ? records : *own;
    const std::int64_t needed = task.few_shot.count + (is_same ? 1 : 0);
    if (from.size() < needed)
      core::fail(core::ErrorKind::input,
                 {from.path().string(), fmt::format("there are {} records", from.size()),
                  fmt::format("few_shot.count asks for {}", task.few_shot.count),
                  "Lower it, or name another few_shot.data."});
    for (std::int64_t i = 0; i < needed; ++i)
      examples_.push_back({is_same ? i : -1, asker.example(asker.ask(from, i))});
  }

  std::string before(std::int64_t index) const {
    std::string text = task_.description;
    std::int64_t num = 0;
    for (const auto& [of, example] : examples_) {
      if (of == index || num == task_.few_shot.count) continue;
      text += example + task_.few_shot.separator;
      ++num;
    }
    return text;
  }

 private:
  const Task& task_;
  std::vector<std::pair<std::int64_t, std::string>> examples_;
};

}  // namespace

std::vector<Question> questions_of(const Task& task, std::int64_t limit) {
  const auto records = data::open_records(task.data);
  const Asker asker(task);
  const Preface preface(task, asker, *records);
  const std::int64_t count = limit > 0 ? std::min(limit, records->size()) : records->size();
  if (count == 0)
    core::fail(core::ErrorKind::input, {task.data.string(), "there is no question in it",
                                        "a task asks some", "Is it the right file?"});
  std::vector<Question> questions;
  for (std::int64_t i = 0; i < count; ++i) {
    Question question = asker.ask(*records, i);
    if (!question.has_something_asked) continue;
    if (task.kind != Kind::perplexity) {
      const std::string before = preface.before(i);
      question.prompt = before + question.prompt;
      for (std::string& prompt : question.prompts)
        prompt = before + prompt;
    }
    questions.push_back(std::move(question));
  }
  if (questions.empty())
    core::fail(core::ErrorKind::input,
               {task.data.string(), "no answer can be judged",
                "all questions ask for a language alone", "Use another task.metrics."});
  return questions;
}

Pair encode_pair(const tokenizer::Tokenizer& tokenizer, std::string prompt,
                 std::string continuation, std::int32_t begin) {
  const std::size_t end = prompt.find_last_not_of(" \t\n\r\f\v");
  const std::size_t kept = end == std::string::npos ? 0 : end + 1;
  continuation = prompt.substr(kept) + continuation;
  prompt.resize(kept);
  if (prompt.empty()) return {{begin}, tokenizer.encode(continuation, tokenizer::Encode::no_ends)};
  const std::vector<std::int32_t> whole = data::encode_prompt(tokenizer, prompt + continuation);
  const auto num = static_cast<std::ptrdiff_t>(
      std::min(data::encode_prompt(tokenizer, prompt).size(), whole.size()));
  return {{whole.begin(), whole.begin() + num}, {whole.begin() + num, whole.end()}};
}

}  // namespace finetune::tasks
