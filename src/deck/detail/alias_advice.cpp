// SPDX-License-Identifier: Apache-2.0
#include "deck/detail/alias_advice.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace finetune::deck {
namespace {

constexpr std::size_t most_translated = 8;

const Row* row_named(const Contents& contents, std::string_view table, std::string_view key) {
  const auto found = std::find_if(contents.rows.begin(), contents.rows.end(), [&](const Row& row) {
    return row.table == table && row.key == key;
  });
  return found == contents.rows.end() ? nullptr : &*found;
}

/// One of the row's choices, as in TOML, for what others write; empty if there is none.
std::string choice_for(const Row& row, const Value& value) {
  const auto is_choice = [&](const std::string& quoted) {
    return row.allowed.find(quoted) != std::string::npos;
  };
  if (value.kind == ValueKind::text && is_choice(to_toml(value.text))) return to_toml(value.text);
  const auto meant = find_value_alias(row.table + "." + row.key, value.text);
  return meant && is_choice(to_toml(*meant)) ? to_toml(*meant) : "";
}

/// What to write behind `our key =`, as in TOML; empty where that cannot be told.
std::string value_for(const Row& row, const KeyAlias& alias, const Value& value) {
  const bool is_false = value.kind == ValueKind::boolean && value.written == "false";
  if (!alias.value().empty() && !is_false) return std::string(alias.value());
  if (!alias.note.empty()) return "";
  const bool is_number = value.kind == ValueKind::integer || value.kind == ValueKind::real;
  std::string text;
  const auto meant = find_value_alias(row.table + "." + row.key, value.text);
  if (row.type == Type::text && meant) {
    text = to_toml(*meant);
  } else if (!row.allowed.empty() && (row.type == Type::choice || row.type == Type::texts)) {
    text = choice_for(row, value);
  } else if (row.type == Type::integer ? value.kind == ValueKind::integer
             : row.type == Type::real  ? is_number
             : row.type == Type::boolean
                 ? value.kind == ValueKind::boolean
                 : value.kind == ValueKind::text && row.type != Type::reals) {
    text = shown(value);
  }
  // "false" of a name that stands for one value means any other.
  return is_false && text == alias.value() ? "" : text;
}

std::string without_quotes(const std::string& value) {
  const bool quoted = value.size() > 1 && value.front() == '"' && value.back() == '"';
  return quoted ? value.substr(1, value.size() - 2) : value;
}

}  // namespace

bool is_usable(const KeyAlias& alias, const Contents& contents) {
  if (alias.here.empty()) return contents.tables.size() > 1;
  return row_named(contents, alias.table(), alias.key()) != nullptr;
}

Advice advice_for(const KeyAlias& alias, const Contents& contents, const std::string& table,
                  const Value& value) {
  if (alias.here.empty()) return {std::string(alias.note), "Remove it."};
  const Row& row = *row_named(contents, alias.table(), alias.key());
  const std::string name = row.table + "." + row.key;
  const std::string why = alias.note.empty() ? "here it is " + name : std::string(alias.note);
  const std::string meant = value_for(row, alias, value);
  if (!value.key_place.argument.empty())
    return {why, fmt::format("Write {}={}.", name, meant.empty() ? ".." : without_quotes(meant))};
  const std::string line =
      meant.empty() ? fmt::format("'{}'", row.key) : fmt::format("{} = {}", row.key, meant);
  if (row.table == table) return {why, fmt::format("Write {} instead.", line)};
  return {why, fmt::format("Write {} below [{}].", line, row.table)};
}

std::string translated_keys(const Section& section, const Contents& contents,
                            std::string_view likely) {
  std::string text;
  std::size_t count = 0;
  for (const auto& [key, value] : section.values) {
    const KeyAlias* alias = find_alias(key);
    std::string name;
    for (const Row& row : contents.rows) {
      if (row.key == key && (name.empty() || row.table == likely)) name = row.table + "." + row.key;
    }
    if (name.empty() && alias != nullptr && !alias->here.empty() && is_usable(*alias, contents))
      name = fmt::format("{}.{}", alias->table(), alias->key());
    if (name.empty()) continue;
    if (++count > most_translated) break;
    text +=
        fmt::format("{}{} is {}", text.empty() ? " Of its keys, " : ", ", shown_name(key), name);
  }
  return text.empty() ? "" : text + ".";
}

}  // namespace finetune::deck
