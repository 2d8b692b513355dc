// SPDX-License-Identifier: Apache-2.0
#include "data/text/columns.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "core/text.hpp"

namespace finetune::data {
namespace {

constexpr auto members = std::to_array<std::pair<const char*, std::string Columns::*>>(
    {{"conversation", &Columns::conversation},
     {"prompt", &Columns::prompt},
     {"input", &Columns::input},
     {"answer", &Columns::answer},
     {"text", &Columns::text},
     {"system", &Columns::system},
     {"tools", &Columns::tools},
     {"tokens", &Columns::tokens},
     {"labels", &Columns::labels},
     {"label", &Columns::label}});

const std::string* mapped(const Columns& columns, const Field& field) {
  const auto found = columns.mapped.find(field.name);
  return found == columns.mapped.end() ? nullptr : &found->second;
}

const std::string* chosen_by_key(const Columns& columns, const Field& field) {
  if (field.chosen == nullptr || (columns.*field.chosen).empty()) return nullptr;
  return &(columns.*field.chosen);
}

/// Of one format: two names for one column, by its key or by another field that means the same.
std::optional<ColumnProblem> chosen_twice(const Columns& columns, const Format& format) {
  const Field* before = nullptr;
  for (const Field& field : format.fields) {
    if (mapped(columns, field) == nullptr) continue;
    const std::string key = fmt::format("columns.{}", field.name);
    if (chosen_by_key(columns, field) != nullptr)
      return ColumnProblem{
          key, fmt::format("data.columns has '{}', and {} is given, too", field.name, field.key),
          "both choose the same column", "Remove one."};
    if (before != nullptr && field.chosen != nullptr && before->chosen == field.chosen)
      return ColumnProblem{
          key, fmt::format("data.columns has '{}' and '{}'", before->name, field.name),
          fmt::format("in the format {} both are the same column", format.name), "Remove one."};
    before = &field;
  }
  return std::nullopt;
}

/// A template of the deck, and the fields of a format that it takes the place of.
struct Written {
  const char* key;
  const std::string& text;
  std::vector<std::string> Format::*fields;
};

std::optional<ColumnProblem> unfit_template(const Columns& columns, const Written& written,
                                            std::span<const Format* const> formats) {
  if (written.text.empty()) return std::nullopt;
  std::vector<std::string> names;
  bool is_taken = false;
  for (const Format* format : formats) {
    if (std::ranges::find(names, format->name) == names.end()) names.push_back(format->name);
    for (const Field& field : format->fields) {
      const auto& replaced = format->*written.fields;
      if (std::ranges::find(replaced, field.name) == replaced.end()) continue;
      is_taken = true;
      if (mapped(columns, field) == nullptr && chosen_by_key(columns, field) == nullptr) continue;
      return ColumnProblem{
          written.key,
          fmt::format("data.{} is given, and {}, too", written.key, column_of(columns, field).key),
          fmt::format("the template takes the place of '{}'", field.name),
          fmt::format("Remove one; the template reads any column: {{{{ {} }}}}.",
                      column_of(columns, field).name)};
    }
  }
  if (is_taken) return std::nullopt;
  return ColumnProblem{
      written.key, fmt::format("data.{} is given", written.key),
      fmt::format("no sample of the format {} is written by it", fmt::join(names, " or ")),
      "Set data.format to \"completion\" or \"alpaca\", or remove it."};
}

/// What the deck says of conversations, where the formats have none.
std::optional<ColumnProblem> unfit_messages(const Columns& columns,
                                            std::span<const Format* const> formats) {
  std::vector<std::string> names;
  bool has_chat = false, has_messages = false, has_template = false;
  for (const Format* format : formats) {
    if (std::ranges::find(names, format->name) == names.end()) names.push_back(format->name);
    has_chat = has_chat || format->needs_template;
    has_messages = has_messages || format->reads_messages;
    has_template = has_template || (format->layout == Layout::separate && !format->has_tokens);
  }
  const auto unfit = [&](const char* key, const char* what) {
    return ColumnProblem{
        key, fmt::format("data.{} is given", key),
        fmt::format("no sample of the format {} {}", fmt::join(names, " or "), what),
        "Set data.format to \"chat\", or remove it."};
  };
  if (!columns.turns.empty() && !has_chat) return unfit("turn_columns", "is a conversation");
  if (!columns.message_fields.empty() && !has_messages)
    return unfit("message_fields", "has messages");
  if (!columns.roles.empty() && !has_messages) return unfit("roles", "has messages");
  if (!columns.template_kwargs.empty() && !has_template)
    return unfit("template_kwargs", "is written by a chat template");
  for (const Format* format : formats) {
    for (const Field& field : format->fields) {
      const bool is_list = field.chosen == &Columns::conversation;
      if (!is_list || columns.turns.empty() || !column_of(columns, field).chosen) continue;
      return ColumnProblem{
          "turn_columns",
          fmt::format("data.turn_columns is given, and {}, too", column_of(columns, field).key),
          "a conversation is a list in one column, or a column each", "Remove one."};
    }
  }
  return std::nullopt;
}

}  // namespace

Column column_of(const Columns& columns, const Field& field) {
  const std::string map_key = fmt::format("data.columns.{}", field.name);
  if (const std::string* name = mapped(columns, field)) return {*name, map_key, true};
  if (const std::string* name = chosen_by_key(columns, field)) return {*name, field.key, true};
  return {field.name, field.chosen == nullptr ? map_key : field.key};
}

bool has_column(const OrderedJson& record, const Columns& columns, const Field& field) {
  return record.contains(column_of(columns, field).name);
}

bool names_columns(const Columns& columns) {
  return !columns.mapped.empty() || !columns.turns.empty() || !columns.prompt_template.empty() ||
         !columns.answer_template.empty() || std::ranges::any_of(members, [&](const auto& member) {
           return !(columns.*member.second).empty();
         });
}

std::string describe(const Columns& columns) {
  std::string text;
  for (const auto& [key, member] : members)
    if (!(columns.*member).empty()) text += fmt::format("{}_column {}\n", key, columns.*member);
  for (const auto& [field, name] : columns.mapped)
    text += fmt::format("column {} {}\n", field, name);
  for (const std::string& name : columns.turns)
    text += fmt::format("turn {} {}\n", name.size(), name);
  for (const auto& [field, name] : columns.message_fields)
    text += fmt::format("message {} {}\n", field, name);
  for (const auto& [role, name] : columns.roles)
    text += fmt::format("role {} {}\n", role, name);
  for (const auto& [key, written] : {std::pair("prompt", &columns.prompt_template),
                                     std::pair("answer", &columns.answer_template)})
    if (!written->empty())
      text += fmt::format("{}_template {} {}\n", key, written->size(), *written);
  if (!columns.template_kwargs.empty())
    text += fmt::format("template_kwargs {}\n", dump_json(columns.template_kwargs));
  return text;
}

std::vector<std::string> field_names(std::span<const Format> formats) {
  std::set<std::string> names;
  for (const Format& format : formats)
    for (const Field& field : format.fields)
      names.insert(field.name);
  return {names.begin(), names.end()};
}

std::optional<ColumnProblem> column_problem(const Columns& columns,
                                            std::span<const Format* const> formats) {
  std::set<std::string> names;
  std::vector<std::string> of;
  for (const Format* format : formats) {
    if (std::ranges::find(of, format->name) == of.end()) of.push_back(format->name);
    for (const Field& field : format->fields)
      names.insert(field.name);
  }
  for (const auto& [name, column] : columns.mapped) {
    if (names.contains(name)) continue;
    const std::vector<std::string> there(names.begin(), names.end());
    const auto meant = core::nearest(name, there);
    return ColumnProblem{"columns." + name,
                         fmt::format("data.columns has '{}', which is no field here", name),
                         fmt::format("the fields of the format {} are {}", fmt::join(of, " and "),
                                     fmt::join(names, ", ")),
                         meant ? fmt::format("Did you mean '{}'?", *meant)
                               : "Use one of these, or another data.format."};
  }
  for (const Format* format : formats)
    if (auto problem = chosen_twice(columns, *format)) return problem;
  if (auto problem = unfit_messages(columns, formats)) return problem;
  auto problem = unfit_template(
      columns, {"prompt_template", columns.prompt_template, &Format::prompt_fields}, formats);
  if (problem) return problem;
  return unfit_template(
      columns, {"answer_template", columns.answer_template, &Format::answer_fields}, formats);
}

}  // namespace finetune::data
