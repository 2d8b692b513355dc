// SPDX-License-Identifier: Apache-2.0
#include "deck/detail/source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text.hpp"

namespace finetune::deck {
namespace {

constexpr std::size_t longest_excerpt_bytes = 100;
constexpr std::size_t longest_argument_bytes = 120;
constexpr std::string_view indent = "    ";

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

/// The start of the character that holds byte `i` (or the end of `text`).
std::size_t character_start(std::string_view text, std::size_t i) {
  i = std::min(i, text.size());
  while (i > 0 && i < text.size() && continues_character(text[i]))
    --i;
  return i;
}

std::size_t num_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); }));
}

/// Blanks as wide as `text`; tabs stay tabs, so that the caret stands right whatever their width.
std::string blanks(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!continues_character(c)) out += c == '\t' ? '\t' : ' ';
  }
  return out;
}

}  // namespace

std::string clipped(std::string_view text, std::size_t limit_bytes) {
  if (text.size() <= limit_bytes) return std::string(text);
  return std::string(text.substr(0, character_start(text, limit_bytes))) + "...";
}

TextPlace TextPlace::in_argument(std::string argument) {
  TextPlace place;
  place.argument = std::move(argument);
  return place;
}

std::string_view SourceText::line(std::int64_t number) const {
  std::string_view rest = text;
  for (std::int64_t i = 1; i < number; ++i) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) return {};
    rest.remove_prefix(end + 1);
  }
  std::string_view found = rest.substr(0, rest.find('\n'));
  if (found.ends_with('\r')) found.remove_suffix(1);
  return found;
}

std::string SourceText::where(const TextPlace& place) const {
  if (!place.argument.empty()) {
    std::string shown = clipped(place.argument, longest_argument_bytes);
    std::replace(shown.begin(), shown.end(), '\n', ' ');
    return "command line: " + core::printable(shown);
  }
  const std::string file = core::printable(file_name);
  return place.line > 0 ? fmt::format("{}:{}", file, place.line) : file;
}

std::string SourceText::excerpt(const TextPlace& place) const {
  if (!place.argument.empty() || place.line < 1) return "";
  std::string_view shown = line(place.line);
  // A line that cannot be printed as it is has no columns either.
  if (shown.empty() || core::invalid_utf8(shown) || core::printable(shown) != shown) return "";
  if (place.column < 1) return fmt::format("{}{}", indent, clipped(shown, longest_excerpt_bytes));

  const std::size_t column = std::min(static_cast<std::size_t>(place.column - 1), shown.size());
  const std::size_t begin = column < longest_excerpt_bytes * 3 / 4
                                ? 0
                                : character_start(shown, column - longest_excerpt_bytes / 2);
  const std::string prefix = begin > 0 ? "..." : "";
  const std::string_view before = shown.substr(begin, column - begin);
  shown.remove_prefix(begin);
  const std::string window = clipped(shown, longest_excerpt_bytes);
  const std::string_view marked = std::string_view(window).substr(
      std::min(before.size(), window.size()),
      static_cast<std::size_t>(std::max<std::int64_t>(1, place.width)));
  const std::size_t num_tildes = std::max<std::size_t>(1, num_characters(marked)) - 1;
  return fmt::format("{0}{1}{2}\n{0}{3}{4}^{5}", indent, prefix, window, blanks(prefix),
                     blanks(before), std::string(num_tildes, '~'));
}

}  // namespace finetune::deck
