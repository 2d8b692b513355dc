// SPDX-License-Identifier: Apache-2.0
// Keys that hold several values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "deck/detail/contents.hpp"
#include "deck/detail/range.hpp"
#include "deck/suggest.hpp"
#include "deck/table.hpp"

namespace finetune::deck {
namespace {

constexpr std::size_t most_elements = 10000;

bool contains(const std::vector<std::string>& choices, const std::string& text) {
  return std::find(choices.begin(), choices.end(), text) != choices.end();
}

/// Whether several could be named: an array, or [a,b] on the command line.
bool is_list(const Value& value) {
  const bool is_argument = !value.place.argument.empty();
  return value.kind == ValueKind::array ||
         (is_argument && value.text.starts_with('[') && value.text.ends_with(']'));
}

/// `[a, b/c]` of the command line, where words need no quotes: TOML it is not.
std::vector<Value> words_of(const Value& value) {
  std::vector<Value> words;
  std::string_view rest = std::string_view(value.text).substr(1, value.text.size() - 2);
  while (!core::trimmed(rest).empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    Value word;
    word.text = core::trimmed(rest.substr(0, comma));
    if (word.text.size() > 1 && word.text.front() == '"' && word.text.back() == '"')
      word.text = word.text.substr(1, word.text.size() - 2);
    word.written = word.text;
    word.place = value.place;
    words.push_back(std::move(word));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return words;
}

}  // namespace

/// The elements of a value that should be a text or an array of texts; nothing if it is neither.
std::optional<std::vector<Value>> Table::text_elements(const Row& row, const Value& value) {
  const bool is_argument = !value.place.argument.empty();
  if (value.kind == ValueKind::array) {
    std::vector<Value> elements = value.elements;
    if (is_argument) {
      for (Value& element : elements)
        element.place = value.place;
    }
    return elements;
  }
  if (is_list(value)) return words_of(value);
  if (value.kind != ValueKind::text && !is_argument) {
    wrong_type(row, value);
    return std::nullopt;
  }
  std::vector<Value> one = {value};
  if (value.kind != ValueKind::text) {
    one.front().kind = ValueKind::text;
    one.front().text = value.written;
  }
  return one;
}

/// Whether an element of a list of texts may be used; its problem is noted otherwise.
bool Table::is_fit(const Row& row, const Value& value, const std::vector<std::string>& choices) {
  if (value.kind != ValueKind::text) {
    wrong_type(row, value);
  } else if (value.text.find('\0') != std::string::npos) {
    zero_character(row, value);
  } else if (!choices.empty() && !contains(choices, value.text)) {
    not_a_choice(row, value, choices);
  } else {
    return true;
  }
  return false;
}

void Table::texts(const Key& key, std::vector<std::string>& values,
                  const std::vector<std::string>& choices) {
  Row row = this->row(key, Type::texts);
  if (!choices.empty()) row.allowed = fmt::format("each one of {}", list(choices, "\"", "\""));
  row.default_value = to_toml(values);
  require_default(
      row, choices.empty() || std::all_of(values.begin(), values.end(),
                                          [&](auto& text) { return contains(choices, text); }));
  if (const Value* found = given(row)) {
    const auto elements = text_elements(row, *found);
    std::vector<std::string> texts;
    bool fits = elements.has_value();
    if (fits && elements->size() > most_elements) {
      out_of_range(row, *found);
      fits = false;
    }
    if (fits) {
      const bool is_empty = elements->size() == 1 && elements->front().kind == ValueKind::text &&
                            elements->front().text.empty();
      // What is written as a list is meant to name something.
      if (is_empty && is_list(*found)) {
        problem(row.key, fmt::format("{}.{} names \"\"", row.table, row.key),
                "an empty text stands for nothing", "Leave it out: [] names none.");
        fits = false;
      }
      for (const Value& element : *elements) {
        if (is_empty) break;
        fits = is_fit(row, element, choices) && fits;
        texts.push_back(element.text);
      }
    }
    if (fits && texts.empty() && row.required) {
      problem(row.key, fmt::format("{}.{} is empty", row.table, row.key), "it has no default",
              row.sentence);
    }
    if (fits) values = std::move(texts);
  }
  row.value = to_toml(values);
  contents_->rows.push_back(std::move(row));
}

void Table::named_texts(const Key& key, std::map<std::string, std::string>& values,
                        const std::vector<std::string>& names) {
  Row row = this->row(key, Type::named_texts);
  row.allowed = fmt::format("of the names {}", list(names));
  row.default_value = to_toml(values);
  require_default(row, std::all_of(values.begin(), values.end(),
                                   [&](auto& entry) { return contains(names, entry.first); }));
  if (const Value* found = given(row)) {
    std::map<std::string, std::string> texts;
    bool fits = found->kind == ValueKind::table;
    if (!fits) wrong_type(row, *found);
    for (const auto& [name, entry] : found->entries) {
      Row named = row;
      named.key = fmt::format("{}.{}", row.key, shown_name(name));
      named.type = Type::text;
      Value placed = entry;
      if (!found->place.argument.empty()) placed.place = placed.key_place = found->place;
      if (!contains(names, name)) {
        const auto meant = closest(name, names);
        contents_->problems.add(
            {placed.key_place,
             fmt::format("{}.{} has no '{}'", row.table, row.key, shown_name(name)),
             fmt::format("its names are {}", list(names)),
             meant ? fmt::format("Did you mean '{}'?", *meant) : "Use one of these."});
        fits = false;
      } else if (!is_fit(named, placed, {})) {
        fits = false;
      } else if (placed.text.empty()) {
        contents_->problems.add({placed.place, fmt::format("{}.{} is empty", row.table, named.key),
                                 "it names nothing", "Write a name, or remove the entry."});
        fits = false;
      } else {
        texts[name] = placed.text;
      }
    }
    if (fits) values = std::move(texts);
  }
  row.value = to_toml(values);
  contents_->rows.push_back(std::move(row));
}

void Table::reals(const Key& key, std::vector<double>& values, Range<double> range) {
  Row row = this->row(key, Type::reals);
  row.allowed = describe(range);
  row.default_value = to_toml(values);
  const auto is_allowed = [&](double number) {
    return std::isfinite(number) && deck::contains(range, number);
  };
  require_default(row, std::all_of(values.begin(), values.end(), is_allowed));
  if (const Value* found = given(row)) {
    std::vector<double> numbers;
    bool fits = found->kind == ValueKind::array;
    if (!fits) wrong_type(row, *found);
    for (const Value& element : found->elements) {
      Value placed = element;
      if (!found->place.argument.empty()) placed.place = found->place;
      const auto number = parse_real(element.written);
      if (element.kind != ValueKind::real && element.kind != ValueKind::integer) {
        wrong_type(row, placed);
        fits = false;
      } else if (!number || !is_allowed(*number)) {
        out_of_range(row, placed);
        fits = false;
      } else {
        numbers.push_back(*number);
      }
    }
    if (fits) values = std::move(numbers);
  }
  row.value = to_toml(values);
  contents_->rows.push_back(std::move(row));
}

}  // namespace finetune::deck
