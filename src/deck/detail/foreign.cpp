// SPDX-License-Identifier: Apache-2.0
#include "deck/detail/foreign.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "deck/aliases.hpp"

namespace finetune::deck {
namespace {

constexpr std::size_t most_translated_keys = 8;

bool is_name_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

/// The name before `: ` or a colon that ends the line; empty if the line is no such thing.
std::string_view yaml_key(std::string_view line) {
  const auto end = std::find_if_not(line.begin(), line.end(), is_name_letter);
  const auto length = static_cast<std::size_t>(end - line.begin());
  const std::string_view rest = line.substr(length);
  const bool is_key = length > 0 && rest.starts_with(':') &&
                      (rest.size() == 1 || rest[1] == ' ' || rest[1] == '\t');
  return is_key ? line.substr(0, length) : "";
}

struct Line {
  std::int64_t number = 0;
  std::string_view text;  ///< without blanks around it
};

/// Those that are neither empty nor comments.
std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    const bool is_script = number == 1 && line.starts_with("#!");
    if (!line.empty() && (line.front() != '#' || is_script)) lines.push_back({number, line});
  }
  return lines;
}

/// "Of its keys, base_model is model.path, ..."
std::string translation(const std::vector<Line>& lines) {
  std::string text;
  std::size_t count = 0;
  for (const Line& line : lines) {
    const KeyAlias* alias = find_alias(yaml_key(line.text));
    if (alias == nullptr || alias->here.empty()) continue;
    text += fmt::format("{}{} is {}.{}", count == 0 ? " Of its keys, " : ", ", yaml_key(line.text),
                        alias->table(), alias->key());
    if (++count == most_translated_keys) break;
  }
  return text.empty() ? "" : text + ".";
}

}  // namespace

std::optional<DeckProblem> foreign_language(std::string_view text) {
  const std::vector<Line> lines = lines_of(text);
  if (lines.empty()) return std::nullopt;
  const Line first = lines.front();
  const TextPlace place(first.number);
  constexpr const char* why = "a deck is TOML: tables as [train], and key = value below them";
  constexpr const char* remedy =
      "Write it as a deck, or have `finetune import` do that: inputs/ has some to begin with, "
      "`finetune --reference` lists every key.";
  if (first.text.starts_with("#!"))
    return DeckProblem{place, "this is a script", why, "Name the deck that it starts."};
  if (first.text.front() == '{' || first.text.starts_with("[{"))
    return DeckProblem{place, "this is JSON", why, remedy};
  const bool is_yaml = first.text == "---" || first.text.starts_with("%YAML") ||
                       first.text.starts_with("- ") || !yaml_key(first.text).empty();
  if (is_yaml) return DeckProblem{place, "this is YAML", why, remedy + translation(lines)};
  return std::nullopt;
}

}  // namespace finetune::deck
