// SPDX-License-Identifier: Apache-2.0
#include "deck/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "deck/aliases.hpp"
#include "deck/detail/contents.hpp"
#include "deck/detail/range.hpp"
#include "deck/suggest.hpp"

namespace finetune::deck {
namespace {

std::string_view expected(Type type) {
  switch (type) {
    case Type::integer:
      return "an integer";
    case Type::real:
      return "a number";
    case Type::boolean:
      return "true or false";
    case Type::texts:
      return "a string or an array of strings";
    case Type::reals:
      return "an array of numbers";
    case Type::named_texts:
      return "a table of strings";
    case Type::values:
      return "a table";
    default:
      return "a string";
  }
}

/// 1000 for 1e3: what the author of a real number in an integer's place meant.
std::optional<std::int64_t> as_integer(const Value& value) {
  const auto number = value.kind == ValueKind::real ? parse_real(value.written) : std::nullopt;
  if (!number || std::abs(*number) > 1e15 || std::floor(*number) != *number) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

/// A string, an integer or a boolean as what a variable of the environment holds; nothing for
/// other kinds.
std::optional<std::string> as_text(const Value& value) {
  if (value.kind == ValueKind::text) return value.text;
  if (value.kind == ValueKind::boolean) return value.written == "true" ? "1" : "0";
  const auto number =
      value.kind == ValueKind::integer ? parse_integer(value.written) : std::nullopt;
  return number ? std::optional(std::to_string(*number)) : std::nullopt;
}

/// Of a value without quotes: many other programs have numbers and booleans for choices.
std::string remedy_for_choice(const Row& row, const Value& value) {
  const auto is_choice = [&](const std::string& text) {
    return row.allowed.find(to_toml(text)) != std::string::npos;
  };
  const auto meant = find_value_alias(row.table + "." + row.key, value.written);
  if (meant && is_choice(*meant)) return fmt::format("Write {} = {}.", row.key, to_toml(*meant));
  if (is_choice(value.written))
    return fmt::format("Put it in quotes: {} = {}.", row.key, to_toml(value.written));
  return fmt::format("Write {}.", row.allowed);
}

std::string expected(const Row& row) {
  return fmt::format("{}{}", expected(row.type), row.may_be_auto ? " or \"auto\"" : "");
}

std::string remedy_for_type(const Row& row, const Value& value) {
  const bool wants_number = row.type == Type::integer || row.type == Type::real;
  if (wants_number && value.kind == ValueKind::text) {
    const bool fits = row.type == Type::integer ? parse_integer(value.text).has_value()
                                                : parse_real(value.text).has_value();
    if (fits) return fmt::format("Remove the quotes: {} = {}.", row.key, value.text);
  }
  if (const auto integer = as_integer(value); integer && row.type == Type::integer)
    return fmt::format("Write {} = {}.", row.key, *integer);
  if (row.type == Type::boolean) return "Write true or false, without quotes.";
  const bool wants_text = row.type == Type::text || row.type == Type::choice;
  const bool is_scalar = value.kind == ValueKind::integer || value.kind == ValueKind::real ||
                         value.kind == ValueKind::boolean || value.kind == ValueKind::date;
  if (row.type == Type::choice && is_scalar) return remedy_for_choice(row, value);
  if (const auto meant = find_value_alias(row.table + "." + row.key, value.written);
      meant && wants_text)
    return fmt::format("Write {} = {}.", row.key, to_toml(*meant));
  if (wants_text && is_scalar)
    return fmt::format("Put it in quotes: {} = \"{}\".", row.key, shown(value));
  if (row.type == Type::texts)
    return fmt::format("Write {0} = \"...\" or {0} = [\"...\", \"...\"].", row.key);
  if (row.type == Type::reals) return fmt::format("Write {} = [1.0, 2.0].", row.key);
  if (row.type == Type::named_texts)
    return fmt::format("Write {} = {{ NAME = \"...\" }}.", row.key);
  if (row.type == Type::values) return fmt::format("Write {} = {{ NAME = true }}.", row.key);
  if (row.required) return fmt::format("Write {} = ... with {}.", row.key, expected(row));
  return fmt::format("Write {}, for example {} = {}.", expected(row), row.key, row.default_value);
}

}  // namespace

bool Table::is_bound(const std::string& key) const {
  return std::any_of(contents_->rows.begin(), contents_->rows.end(),
                     [&](const Row& row) { return row.table == name_ && row.key == key; });
}

Row Table::row(const Key& key, Type type) const {
  const std::string name(key.name);
  if (is_bound(name))
    core::check(false, fmt::format("deck: {}.{} is bound twice", name_, name).c_str());
  Row row;
  row.table = name_;
  row.key = name;
  row.restart = key.restart;
  row.sentence = key.sentence;
  row.unit = key.unit;
  row.required = key.required;
  row.type = type;
  return row;
}

void Table::require_default(const Row& row, bool is_allowed) const {
  const std::string what =
      fmt::format("the default of {}.{} is not one of its own values", row.table, row.key);
  core::check(row.required || is_allowed, what.c_str());
}

const Value* Table::given(const Row& row) {
  const Value* value = contents_->document.find(row.table, row.key);
  if (value == nullptr && row.required && !contents_->is_reference) {
    problem(row.key, fmt::format("{}.{} is missing", row.table, row.key), "it has no default",
            fmt::format("Write {} = ... below [{}]. {}", row.key, row.table, row.sentence));
  }
  return value;
}

void Table::integer(const Key& key, std::int64_t& value, Range<std::int64_t> range) {
  Row row = this->row(key, Type::integer);
  const auto written = [&](std::int64_t number) {
    return range.zero_is_auto && number == 0 ? to_toml(std::string_view("auto")) : to_toml(number);
  };
  row.allowed = describe(range);
  row.may_be_auto = range.zero_is_auto;
  row.default_value = written(value);
  require_default(row, contains(range, value));
  if (const Value* found = given(row)) {
    const auto number = parse_integer(found->written);
    const bool is_hidden = range.zero_is_auto && number == 0;
    if (range.zero_is_auto && found->kind == ValueKind::text && found->text == "auto") {
      value = 0;
    } else if (found->kind != ValueKind::integer) {
      wrong_type(row, *found);
    } else if (!number || is_hidden || !contains(range, *number)) {
      out_of_range(row, *found);
    } else {
      value = *number;
    }
  }
  row.value = written(value);
  contents_->rows.push_back(std::move(row));
}

void Table::real(const Key& key, double& value, Range<double> range) {
  Row row = this->row(key, Type::real);
  row.allowed = describe(range);
  row.default_value = to_toml(value);
  require_default(row, std::isfinite(value) && contains(range, value));
  if (const Value* found = given(row)) {
    const auto number = parse_real(found->written);
    if (found->kind != ValueKind::real && found->kind != ValueKind::integer) {
      wrong_type(row, *found);
    } else if (!number || !std::isfinite(*number) || !contains(range, *number)) {
      out_of_range(row, *found);
    } else {
      value = *number;
    }
  }
  row.value = to_toml(value);
  contents_->rows.push_back(std::move(row));
}

void Table::boolean(const Key& key, bool& value) {
  Row row = this->row(key, Type::boolean);
  row.default_value = to_toml(value);
  if (const Value* found = given(row)) {
    if (found->kind != ValueKind::boolean) {
      wrong_type(row, *found);
    } else {
      value = found->written == "true";
    }
  }
  row.value = to_toml(value);
  contents_->rows.push_back(std::move(row));
}

void Table::text(const Key& key, std::string& value) {
  Row row = this->row(key, Type::text);
  row.default_value = to_toml(value);
  if (const Value* found = given(row)) {
    const bool is_text = found->kind == ValueKind::text;
    if (!is_text && found->place.argument.empty()) {
      wrong_type(row, *found);
    } else if (is_text && found->text.find('\0') != std::string::npos) {
      zero_character(row, *found);
    } else {
      value = is_text ? found->text : found->written;
    }
  }
  row.value = to_toml(value);
  contents_->rows.push_back(std::move(row));
}

void Table::choice(const Key& key, std::string& value, const std::vector<std::string>& choices) {
  Row row = this->row(key, Type::choice);
  row.allowed = fmt::format("one of {}", list(choices, "\"", "\""));
  row.default_value = to_toml(value);
  const auto is_choice = [&](const std::string& text) {
    return std::find(choices.begin(), choices.end(), text) != choices.end();
  };
  require_default(row, is_choice(value));
  if (const Value* found = given(row)) {
    const bool is_text = found->kind == ValueKind::text;
    const std::string& text = is_text ? found->text : found->written;
    if (!is_text && found->place.argument.empty()) {
      wrong_type(row, *found);
    } else if (!is_choice(text)) {
      not_a_choice(row, *found, choices);
    } else {
      value = text;
    }
  }
  row.value = to_toml(value);
  contents_->rows.push_back(std::move(row));
}

void Table::others(Restart restart, const std::function<bool(const std::string& key)>& accepts,
                   std::map<std::string, std::string>& values) {
  const auto section = contents_->document.sections.find(name_);
  if (section == contents_->document.sections.end()) return;
  for (const auto& [key, found] : section->second.values) {
    const bool is_table = found.kind == ValueKind::table || found.kind == ValueKind::table_array;
    if (is_table || is_bound(key) || !accepts(key)) continue;
    Row row = this->row({.name = key, .restart = restart, .sentence = ""}, Type::text);
    const auto text = as_text(found);
    if (!text) {
      wrong_type(row, found);
    } else if (text->find('\0') != std::string::npos) {
      zero_character(row, found);
    } else {
      values[key] = *text;
      row.value = found.kind == ValueKind::text ? to_toml(*text) : found.written;
    }
    contents_->rows.push_back(std::move(row));
  }
}

void Table::zero_character(const Row& row, const Value& value) {
  contents_->problems.add({value.place,
                           fmt::format("{}.{} holds the character U+0000", row.table, row.key),
                           "texts handed to the system end there", "Remove it."});
}

void Table::wrong_type(const Row& row, const Value& value) {
  contents_->problems.add({value.place,
                           fmt::format("{}.{} = {} is {}", row.table, row.key, shown(value),
                                       deck::describe(value.kind)),
                           fmt::format("{} is expected", expected(row)),
                           remedy_for_type(row, value)});
}

void Table::out_of_range(const Row& row, const Value& value) {
  const std::string kind(row.type == Type::integer ? "an integer of 64 bits" : "a finite number");
  const std::string allowed = row.allowed.empty() ? kind : fmt::format("a value {}", row.allowed);
  const std::string unit = row.unit.empty() ? "" : fmt::format(" ({})", row.unit);
  contents_->problems.add(
      {value.place, fmt::format("{}.{} = {} is out of range", row.table, row.key, shown(value)),
       fmt::format("{} is expected", allowed), fmt::format("Use {}{}.", allowed, unit)});
}

void Table::not_a_choice(const Row& row, const Value& value,
                         const std::vector<std::string>& choices) {
  auto meant = find_value_alias(row.table + "." + row.key, value.text);
  if (!meant || std::find(choices.begin(), choices.end(), *meant) == choices.end())
    meant = closest(value.text, choices);
  contents_->problems.add(
      {value.place,
       fmt::format("{}.{} = {} is not one of its values", row.table, row.key, shown(value)),
       fmt::format("they are {}", list(choices, "\"", "\"")),
       meant ? fmt::format("Did you mean \"{}\"?", *meant) : "Use one of these."});
}

void Table::problem(std::string_view key, const std::string& problem, const std::string& why,
                    const std::string& remedy) {
  const auto& sections = contents_->document.sections;
  TextPlace place;
  const std::size_t dot = std::min(key.find('.'), key.size());
  if (const Value* value = contents_->document.find(name_, std::string(key.substr(0, dot)))) {
    place = value->place;
    for (const auto& [name, entry] : value->entries)
      if (dot < key.size() && name == key.substr(dot + 1) && place.argument.empty())
        place = entry.place;
  } else if (const auto section = sections.find(name_); section != sections.end()) {
    place = section->second.place;
  }
  contents_->problems.add({place, problem, why, remedy});
}

}  // namespace finetune::deck
