// SPDX-License-Identifier: Apache-2.0
#include "tasks/detail/phrases.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace finetune::tasks {
namespace {

constexpr const char* spaces = " \t\n\r\f\v";

/// Before a name or a number, mostly.
bool is_abbreviation(std::string word) {
  static constexpr std::array<std::string_view, 28> known = {
      "mr",   "mrs", "ms",   "dr",  "prof", "sr",  "jr",  "st",  "mt",   "vs",
      "gen",  "col", "capt", "lt",  "rev",  "hon", "inc", "ltd", "corp", "co",
      "dept", "est", "fig",  "u.s", "u.k",  "e.g", "i.e", "a.m"};
  std::ranges::transform(word, word.begin(), [](unsigned char c) {
    return c < 0x80 ? static_cast<char>(std::tolower(c)) : static_cast<char>(c);
  });
  return std::ranges::find(known, word) != known.end();
}

/// Whether a '.' behind `word` and in front of `next` ends no sentence.
bool goes_on(const std::string& word, char next) {
  const bool is_initial =
      word.size() == 1 && std::isalpha(static_cast<unsigned char>(word[0])) != 0;
  const bool is_number = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isdigit(c) != 0;
  });
  const bool is_small = std::islower(static_cast<unsigned char>(next)) != 0;
  return is_abbreviation(word) || (is_initial && word != "I") || (is_number && is_small);
}

}  // namespace

std::string stripped(std::string_view text) {
  const std::size_t first = text.find_first_not_of(spaces);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(spaces) + 1 - first));
}

std::string literal(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && std::isalnum(byte) == 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

Regex expression(const std::string& pattern, bool ignores_case, const std::string& where) {
  return {"(*UCP)" + pattern, ignores_case, where};
}

std::int64_t num_matches(const Regex& regex, std::string_view text) {
  return std::ssize(regex.find_all(text));
}

bool is_found(const Regex& regex, std::string_view text) {
  return num_matches(regex, text) > 0;
}

std::int64_t num_sentences(const std::string& text) {
  static const Regex ends = expression(R"([.?!]+["'”’)\]*]*(?=\s))");
  const std::string body = stripped(text);
  if (body.empty()) return 0;
  std::int64_t count = 1;
  ends.for_each(body, [&](std::size_t begin, std::size_t end) {
    const std::size_t before = body.find_last_of(" \t\n(\"", begin);
    const std::size_t word = before == std::string::npos ? 0 : before + 1;
    const std::size_t next = body.find_first_not_of(spaces, end);
    // Closing marks alone are no sentence.
    if (body.find_first_not_of(" \t\n\r\f\v\"')]}", end) == std::string::npos) return;
    const bool is_one_dot = body[begin] == '.' && body.find_first_not_of('.', begin) == begin + 1;
    if (is_one_dot && goes_on(body.substr(word, begin - word), body[next])) return;
    ++count;
  });
  return count;
}

std::int64_t num_capital_words(const std::string& text) {
  static const Regex words = expression(
      R"(n't\b|'(?:s|m|d|ll|re|ve)\b|[\w*](?:(?!n't\b)(?:[\w*./\-]|'(?!(?:s|m|d|ll|re|ve)\b)(?=\w)))*)",
      true);
  std::int64_t count = 0;
  for (const std::string& word : words.find_all(text))
    count += is_upper(word);
  return count;
}

bool is_upper(std::string_view text) {
  static const Regex upper = expression(R"(\p{Lu})"), other = expression(R"([\p{Ll}\p{Lt}])");
  return is_found(upper, text) && !is_found(other, text);
}

bool is_lower(std::string_view text) {
  static const Regex lower = expression(R"(\p{Ll})"), other = expression(R"([\p{Lu}\p{Lt}])");
  return is_found(lower, text) && !is_found(other, text);
}

}  // namespace finetune::tasks
