// SPDX-License-Identifier: Apache-2.0
#include "deck/document.hpp"

#include "deck/detail/foreign.hpp"
#include "deck/detail/precheck.hpp"
#include "deck/detail/problems.hpp"
#include "deck/detail/syntax.hpp"

#include <toml.hpp>

#include <algorithm>
#include <exception>
#include <map>
#include <sstream>
#include <utility>

namespace finetune::deck {
namespace {

// A deck has about a hundred. The bound keeps the time of what follows small for any input.
constexpr std::size_t most_keys = 10000;

toml::value parse_text(const std::string& text) {
  // A last line without its end makes the library read beyond the text.
  std::istringstream stream(text + "\n");
  return toml::parse(stream, "deck");
}

ValueKind kind_of(const toml::value& value) {
  switch (value.type()) {
    case toml::value_t::boolean:
      return ValueKind::boolean;
    case toml::value_t::integer:
      return ValueKind::integer;
    case toml::value_t::floating:
      return ValueKind::real;
    case toml::value_t::string:
      return ValueKind::text;
    case toml::value_t::table:
      return ValueKind::table;
    case toml::value_t::array: {
      // The library's word for [[name]] is an array that holds tables.
      const auto& elements = value.as_array();
      const bool tables = !elements.empty() && elements.front().is_table();
      return tables ? ValueKind::table_array : ValueKind::array;
    }
    default:
      return ValueKind::date;
  }
}

TextPlace place_of(const toml::source_location& location) {
  return TextPlace(location.line(), location.column(), location.region());
}

/// The key in front of a value: back over = and blanks, then to the start of the last name.
TextPlace key_place(std::string_view line, const TextPlace& value) {
  std::size_t end = static_cast<std::size_t>(value.column - 1);
  if (end > line.size()) return value;
  while (end > 0 && (line[end - 1] == ' ' || line[end - 1] == '\t' || line[end - 1] == '='))
    --end;
  if (end == 0) return value;
  const char last = line[end - 1];
  const bool quoted = last == '"' || last == '\'';
  std::size_t begin = end - 1;
  if (quoted) {
    while (begin > 0 && line[begin - 1] != last)
      --begin;
    if (begin > 0) --begin;
  } else {
    const std::size_t stop = line.find_last_of(" \t.{,", begin);
    begin = stop == std::string_view::npos ? 0 : stop + 1;
  }
  if (begin >= end) return value;
  return TextPlace(value.line, static_cast<std::int64_t>(begin + 1),
                   static_cast<std::int64_t>(end - begin));
}

Value convert(const toml::value& from) {
  const toml::source_location location = from.location();
  Value value;
  value.kind = kind_of(from);
  value.place = place_of(location);
  const bool is_header = value.kind == ValueKind::table || value.kind == ValueKind::table_array;
  value.key_place = is_header ? value.place : key_place(location.line_str(), value.place);
  const std::string& line = location.line_str();
  const std::size_t column = std::min<std::size_t>(location.column() - 1, line.size());
  value.written = line.substr(column, location.region());
  if (location.region() > value.written.size()) value.written += "\n";  // goes on below
  value.text = from.is_string() ? from.as_string().str : value.written;
  if (value.kind == ValueKind::array) {
    for (const toml::value& element : from.as_array())
      value.elements.push_back(convert(element));
  }
  if (value.kind == ValueKind::table) {
    // The library has them in no order.
    const std::map<std::string, toml::value> sorted(from.as_table().begin(), from.as_table().end());
    for (const auto& [name, entry] : sorted)
      value.entries.emplace_back(name, convert(entry));
  }
  return value;
}

Section convert_section(const toml::value& from) {
  Section section;
  section.place = place_of(from.location());
  for (const auto& [name, value] : from.as_table())
    section.values.emplace(name, convert(value));
  return section;
}

std::size_t num_keys(const toml::value& root) {
  std::size_t count = 0;
  for (const auto& [name, value] : root.as_table())
    count += value.is_table() ? 1 + value.as_table().size() : 1;
  return count;
}

}  // namespace

const Value* Document::find(const std::string& section, const std::string& key) const {
  const auto found = sections.find(section);
  if (found == sections.end()) return nullptr;
  const auto value = found->second.values.find(key);
  return value == found->second.values.end() ? nullptr : &value->second;
}

Document parse(const SourceText& source) {
  if (auto problem = precheck(source.text)) fail(source, *std::move(problem));
  if (auto problem = foreign_language(source.text)) fail(source, *std::move(problem));
  toml::value root;
  try {
    root = parse_text(source.text);
  } catch (const std::exception& error) {
    fail(source, syntax_problem(error.what(), source));
  }
  if (num_keys(root) > most_keys) {
    const DeckProblem problem{TextPlace(), "the deck has more than 10,000 keys",
                              "a run has about a hundred", "Is this the right file?"};
    fail(source, problem);
  }
  Document document;
  for (const auto& [name, value] : root.as_table()) {
    if (value.is_table()) {
      document.sections.emplace(name, convert_section(value));
    } else {
      document.outside.emplace(name, convert(value));
    }
  }
  return document;
}

std::optional<Value> parse_value(const std::string& written) {
  constexpr std::size_t value_column = 5;
  try {
    const toml::value root = parse_text("v = " + written);
    if (root.as_table().size() != 1) return std::nullopt;
    const toml::value& only = root.as_table().at("v");
    // Anything else in the text, such as a comment, means that it was not meant as TOML.
    const toml::source_location location = only.location();
    if (location.column() != value_column || location.region() != written.size())
      return std::nullopt;
    Value value = convert(only);
    value.place = TextPlace();
    value.key_place = TextPlace();
    return value;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace finetune::deck
