// SPDX-License-Identifier: Apache-2.0
// What a deck prints about itself: the values of a run, and the reference of all keys.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "deck/deck.hpp"
#include "deck/detail/contents.hpp"

namespace finetune::deck {
namespace {

constexpr std::size_t widest = 100;

std::string_view describe(Type type) {
  switch (type) {
    case Type::integer:
      return "integer";
    case Type::real:
      return "number";
    case Type::boolean:
      return "true or false";
    case Type::texts:
      return "text or an array of texts";
    case Type::reals:
      return "array of numbers";
    case Type::named_texts:
      return "table of texts";
    case Type::values:
      return "table of any values";
    default:
      return "text";
  }
}

/// `text` as comment lines, broken at blanks.
std::string comment(std::string_view text) {
  std::string out;
  std::string line = "#";
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (line.size() > 1 && line.size() + 1 + word.size() > widest) {
      out += fmt::format("{}\n", line);
      line.resize(1);
    }
    line += " ";
    line += word;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return fmt::format("{}{}\n", out, line);
}

/// "number, above 0.0; unit: tokens; default 1e-05; free on restart"
std::string properties(const Row& row) {
  std::string text(describe(row.type));
  if (!row.allowed.empty()) text += fmt::format(", {}", row.allowed);
  if (!row.unit.empty()) text += fmt::format("; unit: {}", row.unit);
  text += row.required ? "; required" : fmt::format("; default {}", row.default_value);
  text += row.restart == Restart::fixed ? "; fixed on restart" : "; free on restart";
  return text;
}

/// A value as the deck's own reader takes it, whose lines have a longest length: a long text goes
/// over several, between three quotes.
std::string broken(const std::string& value) {
  constexpr std::size_t longest = 1000;
  if (value.size() <= longest || !value.starts_with('"')) return value;
  std::string text = "\"\"\"\n";
  std::size_t column = 0;
  for (std::size_t i = 1; i + 1 < value.size();) {
    std::size_t n = value[i] != '\\' ? 1 : value[i + 1] == 'u' ? 6 : 2;
    while ((static_cast<unsigned char>(value[i + n]) & 0xC0) == 0x80)
      ++n;
    const std::string_view character = std::string_view(value).substr(i, n);
    // A backslash at its end joins lines, without the blanks that the next one begins with.
    const bool joins = column >= longest && character != "\\n";
    if (joins) text += "\\\n";
    column = joins || character == "\\n" ? 0 : column + n;
    text += character == "\\n" ? "\n" : joins && character == " " ? "\\u0020" : character;
    i += n;
  }
  return text + "\"\"\"";
}

}  // namespace

std::string Deck::resolved() const {
  std::string text = "# Every key with the value that this run uses.\n";
  for (const BoundTable& table : contents_->tables) {
    text += fmt::format("\n[{}]\n", table.name);
    for (const Row& row : contents_->rows) {
      if (row.table == table.name) text += fmt::format("{} = {}\n", row.key, broken(row.value));
    }
  }
  return text;
}

std::string Deck::reference() const {
  std::string text =
      "# Every key of the deck with its default, as printed by `finetune --reference`.\n";
  for (const BoundTable& table : contents_->tables) {
    text += fmt::format("\n\n{}[{}]\n", comment(table.sentence), table.name);
    for (const Row& row : contents_->rows) {
      if (row.table != table.name) continue;
      text += fmt::format("\n{}{}{}{} = {}\n", comment(row.sentence), comment(properties(row)),
                          row.required ? "# " : "", row.key, row.default_value);
    }
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> Deck::fixed_values() const {
  std::vector<std::pair<std::string, std::string>> values;
  for (const Row& row : contents_->rows) {
    if (row.restart == Restart::fixed)
      values.emplace_back(fmt::format("{}.{}", row.table, row.key), row.value);
  }
  return values;
}

}  // namespace finetune::deck
