// SPDX-License-Identifier: Apache-2.0
#include "data/text/record_template.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/text/columns.hpp"

namespace finetune::data {
namespace {

/// A day that stays.
constexpr std::int64_t day_s = 1'721'952'000;

constexpr const char* optional_field = "{{ name | default('') }} reads what may be missing.";

}  // namespace

std::optional<std::string> template_problem(std::string_view text) {
  try {
    jinja::Template::parse(text, jinja::for_tasks);
  } catch (const jinja::Problem& problem) {
    return problem.what();
  }
  return std::nullopt;
}

jinja::Mapping names_of(const OrderedJson& record) {
  jinja::Mapping names;
  for (const auto& [key, value] : record.items())
    names.set(key, jinja::Value::from_json(value));
  return names;
}

RecordTemplate::RecordTemplate(std::string_view text, std::string key, std::string file)
    : key_(std::move(key)), file_(std::move(file)) {
  try {
    template_.emplace(jinja::Template::parse(text, jinja::for_tasks));
  } catch (const jinja::Problem& problem) {
    core::fail(core::ErrorKind::input,
               {file_.empty() ? "the deck" : file_,
                fmt::format("{} is no template: {}", key_, problem.what()), "", "Correct it."});
  }
}

std::string RecordTemplate::origin() const {
  return file_.empty() ? key_ : fmt::format("{} of {}", key_, file_);
}

std::string RecordTemplate::write(const jinja::Mapping& names, const std::string& where) const {
  // A question is short: whoever needs more runs for ever.
  constexpr jinja::Limits limits{.most_steps = 1'000'000, .most_bytes = 16 << 20};
  try {
    return template_->render(names, day_s, limits).text;
  } catch (const jinja::UndefinedProblem& problem) {
    std::vector<std::string> there;
    for (const auto& [name, value] : names.items)
      there.push_back(core::one_line(name.string()));
    const auto meant = core::nearest(problem.name(), there);
    const std::string remedy = meant ? fmt::format("Did you mean {}? ", *meant)
                               : file_.empty()
                                   ? "Correct the template, or the record: "
                                   : "Use the data that the task is for, or correct the template: ";
    core::fail(core::ErrorKind::input,
               {where, fmt::format("{} is undefined", core::one_line(problem.name())),
                fmt::format("{} reads it, and there are {}", origin(), fmt::join(there, ", ")),
                remedy + optional_field});
  } catch (const jinja::Problem& problem) {
    core::fail(core::ErrorKind::input,
               {where, fmt::format("{} cannot be written: {}", key_, problem.what()),
                file_.empty() ? "it is a template of the deck"
                              : fmt::format("it is a template of {}", file_),
                "Correct the template, or the record."});
  }
}

FieldText::FieldText(Column column, const std::string& text, const char* key)
    : column_(std::move(column)) {
  if (!text.empty()) template_.emplace(text, key);
}

FieldText FieldText::prompt(const Columns& columns, const Field& field) {
  return {column_of(columns, field), columns.prompt_template, "data.prompt_template"};
}

FieldText FieldText::answer(const Columns& columns, const Field& field) {
  return {column_of(columns, field), columns.answer_template, "data.answer_template"};
}

std::string FieldText::read(const OrderedJson& record, const std::string& where) const {
  return template_ ? template_->write(names_of(record), where) : text_field(record, column_, where);
}

}  // namespace finetune::data
