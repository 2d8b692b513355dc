// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "jinja/detail/characters.hpp"
#include "jinja/detail/filters.hpp"
#include "jinja/detail/letters.hpp"

namespace finetune::jinja::detail {
namespace {

Value length(const Filtering& f) {
  if (f.value.is_string() && !f.value.listed().is_sequence())
    return num_characters(f.value.string());
  return static_cast<std::int64_t>(f.elements().size());
}

Value fallback(const Filtering& f) {
  const bool is_missing =
      f.value.is_undefined() || (f.get(1, "boolean", false).is_true() && !f.value.is_true());
  return is_missing ? f.get(0, "default_value", "") : f.value;
}

Value end_of(const Filtering& f, bool is_last) {
  const std::vector<Value> all = f.elements();
  if (all.empty()) return f.budget.undefined("the " + f.name + " element of nothing");
  return is_last ? all.back() : all.front();
}

Value join(const Filtering& f) {
  const Text between = to_written(f.get(0, "d", ""));
  const Value path = f.get(1, "attribute");
  Text text;
  bool is_first = true;
  for (const Value& one : f.elements()) {
    if (!is_first) text += between;
    text += to_written(path.is_none() ? one : by_path(one, path, f.budget));
    is_first = false;
  }
  f.budget.spend_bytes(static_cast<std::int64_t>(text.size()));
  return text;
}

Value reverse(const Filtering& f) {
  require_defined(f.value);
  const bool is_text = f.value.is_string() && !f.value.listed().is_sequence();
  std::vector<Value> all = is_text ? letters_of(f.value.text()) : f.elements();
  std::ranges::reverse(all);
  if (!is_text) return all;
  Text text;
  for (const Value& one : all)
    text += one.text();
  return text;
}

Value pairs(const Filtering& f) {
  if (f.value.is_undefined()) return std::vector<Value>();
  if (f.value.mapping_or_null() == nullptr)
    throw Problem(std::string("items asks for a dict, not ") + f.value.type_name());
  return call(attribute_of(f.value, "items", f.budget), {}, "items");
}

/// As it is compared: strings in lower case unless the case counts.
Value key_of(const Value& value, const Value& path, bool has_case, Budget& budget) {
  const Value key = path.is_none() ? value : by_path(value, path, budget);
  return key.is_string() && !has_case ? Value(lower(key.string())) : key;
}

void sort_by(std::vector<std::pair<Value, Value>>& keyed, bool is_reversed) {
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    return is_reversed ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
}

std::vector<Value> second_of(std::vector<std::pair<Value, Value>> keyed) {
  std::vector<Value> values;
  for (auto& [key, value] : keyed)
    values.push_back(std::move(value));
  return values;
}

Value sort(const Filtering& f) {
  const bool is_reversed = f.get(0, "reverse", false).is_true();
  const bool has_case = f.get(1, "case_sensitive", false).is_true();
  const Value path = f.get(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& one : f.elements())
    keyed.emplace_back(key_of(one, path, has_case, f.budget), one);
  sort_by(keyed, is_reversed);
  return second_of(std::move(keyed));
}

Value dict_sort(const Filtering& f) {
  const Mapping* mapping = f.value.mapping_or_null();
  if (mapping == nullptr)
    throw Problem(std::string("dictsort asks for a dict, not ") + f.value.type_name());
  const bool has_case = f.get(0, "case_sensitive", false).is_true();
  const bool is_by_value = to_text(f.get(1, "by", "key")) == "value";
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : mapping->items)
    keyed.emplace_back(key_of(is_by_value ? value : key, Value(), has_case, f.budget),
                       Value::tuple({key, value}));
  sort_by(keyed, f.get(2, "reverse", false).is_true());
  return second_of(std::move(keyed));
}

Value unique(const Filtering& f) {
  const bool has_case = f.get(0, "case_sensitive", false).is_true();
  const Value path = f.get(1, "attribute");
  std::vector<Value> keys, kept;
  for (const Value& one : f.elements()) {
    Value key = key_of(one, path, has_case, f.budget);
    f.budget.spend(static_cast<std::int64_t>(keys.size()));
    if (std::ranges::find(keys, key) != keys.end()) continue;
    keys.push_back(std::move(key));
    kept.push_back(one);
  }
  return kept;
}

Value group(const Filtering& f) {
  const Value path = f.get(0, "attribute", Value::Undefined{"groupby's attribute"});
  require_defined(path);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& one : f.elements())
    keyed.emplace_back(key_of(one, path, false, f.budget), one);
  sort_by(keyed, false);
  std::vector<Value> groups;
  for (std::size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const std::size_t first = i;
    while (i < keyed.size() && keyed[i].first == keyed[first].first)
      members.push_back(keyed[i++].second);
    groups.push_back(Value::tuple({by_path(members.front(), path, f.budget), members}));
  }
  return groups;
}

Value batch(const Filtering& f) {
  const std::int64_t size = f.integer(0, "linecount", 0);
  if (size < 1) throw Problem("batch: a line has at least one element");
  const Value filler = f.get(1, "fill_with");
  std::vector<Value> rows, row;
  for (Value& one : f.elements()) {
    row.push_back(std::move(one));
    if (static_cast<std::int64_t>(row.size()) == size) rows.emplace_back(std::exchange(row, {}));
  }
  if (row.empty()) return rows;
  while (!filler.is_none() && static_cast<std::int64_t>(row.size()) < size) {
    f.budget.spend();
    row.push_back(filler);
  }
  rows.emplace_back(std::move(row));
  return rows;
}

/// So many lists of about the same length, the longer ones first. Python fills the shorter ones
/// with one element, also where all of them are as long.
Value slice(const Filtering& f) {
  const std::int64_t num_slices = f.integer(0, "slices", 0);
  if (num_slices < 1) throw Problem("slice: there is at least one slice");
  f.budget.spend(num_slices);
  const Value filler = f.get(1, "fill_with");
  const std::vector<Value> all = f.elements();
  const std::int64_t each = std::ssize(all) / num_slices, num_longer = std::ssize(all) % num_slices;
  std::vector<Value> slices;
  auto begin = all.begin();
  for (std::int64_t i = 0; i < num_slices; ++i) {
    const auto end = begin + each + (i < num_longer ? 1 : 0);
    std::vector<Value> taken(begin, end);
    if (!filler.is_none() && i >= num_longer) taken.push_back(filler);
    slices.emplace_back(std::move(taken));
    begin = end;
  }
  return slices;
}

Value extreme(const Filtering& f) {
  const bool has_case = f.get(0, "case_sensitive", false).is_true();
  const Value path = f.get(1, "attribute");
  const std::vector<Value> all = f.elements();
  if (all.empty()) return f.budget.undefined("the " + f.name + " of nothing");
  const Value* best = &all.front();
  for (const Value& one : all) {
    const int order =
        compare(key_of(one, path, has_case, f.budget), key_of(*best, path, has_case, f.budget));
    if (f.name == "max" ? order > 0 : order < 0) best = &one;
  }
  return *best;
}

/// With the name of a filter, or with attribute=.
Value map(const Filtering& f) {
  std::vector<Value> made;
  if (!f.value.is_true()) return made;
  const Value* path = f.arguments.find(SIZE_MAX, "attribute");
  Arguments rest = f.arguments;
  std::string filter;
  if (path == nullptr) {
    if (rest.positional.empty()) throw Problem("map asks for a filter, or for attribute=");
    filter = to_text(rest.positional.front());
    rest.positional.erase(rest.positional.begin());
  }
  for (const Value& one : f.elements()) {
    f.budget.spend();
    if (path == nullptr) {
      made.push_back(filter_of(filter)({one, rest, filter, f.budget}));
      continue;
    }
    Value found = by_path(one, *path, f.budget);
    const Value* other = f.arguments.find(SIZE_MAX, "default");
    made.push_back(found.is_undefined() && other != nullptr ? *other : std::move(found));
  }
  return made;
}

/// select, reject and their twins that look at a field.
Value choose(const Filtering& f) {
  const bool has_path = f.name.ends_with("attr"), keeps = f.name.starts_with("select");
  Arguments rest = f.arguments;
  Value path;
  if (has_path) {
    if (rest.positional.empty()) throw Problem(f.name + " asks for a field");
    path = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  std::optional<Question> question;
  if (!rest.positional.empty()) {
    test = to_text(rest.positional.front());
    rest.positional.erase(rest.positional.begin());
    question = question_of(test);
    if (!question) throw Problem("there is no test \"" + test + "\"");
  }
  std::vector<Value> kept;
  if (!f.value.is_true()) return kept;
  for (const Value& one : f.elements()) {
    f.budget.spend();
    const Value looked_at = has_path ? by_path(one, path, f.budget) : one;
    const bool holds = question ? tested(*question, test, looked_at, rest) : looked_at.is_true();
    if (holds == keeps) kept.push_back(one);
  }
  return kept;
}

Value attribute(const Filtering& f) {
  return attribute_of(f.value, to_text(f.get(0, "name", "")), f.budget);
}

/// The place that a part of a path is, written in digits; nothing: a name, or beyond any list.
std::optional<std::int64_t> place_of(const std::string& part) {
  if (!is_all(part, is_digit)) return std::nullopt;
  std::int64_t place = 0;
  const auto read = std::from_chars(part.data(), part.data() + part.size(), place);
  return read.ec == std::errc() ? std::optional(place) : std::nullopt;
}

}  // namespace

Value by_path(const Value& value, const Value& path, Budget& budget) {
  if (path.is_integer()) return item_of(value, path, budget);
  Value found = value;
  std::string rest = to_text(path);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('.'), rest.size());
    const std::string part = rest.substr(0, end);
    rest.erase(0, end + 1);
    const auto place = place_of(part);
    found = item_of(found, place ? Value(*place) : Value(part), budget);
  }
  return found;
}

const FilterTable& filters_of_lists() {
  static const FilterTable all = {
      {"length", length},
      {"count", length},
      {"default", fallback},
      {"d", fallback},
      {"first", [](const Filtering& f) { return end_of(f, false); }},
      {"last", [](const Filtering& f) { return end_of(f, true); }},
      {"join", join},
      {"reverse", reverse},
      {"items", pairs},
      {"list", [](const Filtering& f) -> Value { return f.elements(); }},
      {"sort", sort},
      {"dictsort", dict_sort},
      {"unique", unique},
      {"groupby", group},
      {"batch", batch},
      {"slice", slice},
      {"min", extreme},
      {"max", extreme},
      {"map", map},
      {"select", choose},
      {"reject", choose},
      {"selectattr", choose},
      {"rejectattr", choose},
      {"attr", attribute},
  };
  return all;
}

}  // namespace finetune::jinja::detail
