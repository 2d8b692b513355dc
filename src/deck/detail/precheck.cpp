// SPDX-License-Identifier: Apache-2.0
#include "deck/detail/precheck.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/text.hpp"

namespace finetune::deck {
namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 20;
// The library copies the line once a value: a megabyte of values in one line would take minutes.
constexpr std::size_t longest_line_bytes = 2048;
constexpr int deepest = 64;
// The library recurses once a bracket, and 10,000 of them overflow its stack. This bound holds even
// if it saw the end of a string where `Nesting` does not.
constexpr int most_brackets = 1024;

/// The line and column of a byte.
TextPlace place_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 = 0 on the first line
  return TextPlace(line, static_cast<std::int64_t>(byte - line_start + 1), 1);
}

std::optional<DeckProblem> check_bytes(std::string_view text) {
  if (const auto bad = core::invalid_utf8(text)) {
    const TextPlace place = place_of(text, *bad);
    return DeckProblem{place,
                       fmt::format("byte {} of this line (0x{:02x}) is not valid UTF-8",
                                   place.column, static_cast<unsigned char>(text[*bad])),
                       "TOML is UTF-8", "Convert the file, for example with iconv."};
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control =
        (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F;
    if (!control) continue;
    const TextPlace place = place_of(text, i);
    return DeckProblem{
        place,
        fmt::format("byte {} of this line (0x{:02x}) is a control character", place.column, byte),
        "TOML allows tabs and line ends only",
        "Remove it, or write it as an escape such as \\u001B in a string."};
  }
  return std::nullopt;
}

std::optional<DeckProblem> check_lines(std::string_view text) {
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    if (end - start > longest_line_bytes) {
      return DeckProblem{
          place_of(text, start),
          fmt::format("this line has {} bytes",
                      core::with_commas(static_cast<std::int64_t>(end - start))),
          fmt::format("at most {} are read",
                      core::with_commas(static_cast<std::int64_t>(longest_line_bytes))),
          "Break it, for example with a string in three quotes."};
    }
    start = end + 1;
  }
  return std::nullopt;
}

/// Walks over strings and comments and reports the brackets outside them.
class Nesting {
 public:
  explicit Nesting(std::string_view text) : text_(text) {}

  std::optional<DeckProblem> check() {
    while (i_ < text_.size()) {
      const char c = text_[i_];
      if (c == '#') {
        i_ = std::min(text_.find('\n', i_), text_.size());
      } else if (c == '"' || c == '\'') {
        skip_string(c);
      } else {
        if (c == '[' || c == '{') ++depth_;
        if ((c == ']' || c == '}') && depth_ > 0) --depth_;
        if (depth_ > deepest) return too_deep();
        ++i_;
      }
    }
    return std::nullopt;
  }

 private:
  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool many_lines = text_.substr(i_, 3) == three;
    i_ += many_lines ? 3 : 1;
    while (i_ < text_.size()) {
      if (quote == '"' && text_[i_] == '\\') {
        i_ += 2;
      } else if (many_lines ? text_.substr(i_, 3) == three : text_[i_] == quote) {
        i_ += many_lines ? 3 : 1;
        return;
      } else if (!many_lines && text_[i_] == '\n') {
        return;  // broken; the parser will say so
      } else {
        ++i_;
      }
    }
  }

  DeckProblem too_deep() const {
    return {place_of(text_, i_), fmt::format("brackets are nested deeper than {} levels", deepest),
            "such files only occur as attacks", "Remove them: a deck needs no nesting."};
  }

  std::string_view text_;
  std::size_t i_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<DeckProblem> precheck(std::string_view text) {
  if (text.size() > most_bytes) {
    return DeckProblem{TextPlace(),
                       fmt::format("the deck has {} bytes",
                                   core::with_commas(static_cast<std::int64_t>(text.size()))),
                       "at most 1 MiB is read", "Is this the right file?"};
  }
  if (auto problem = check_bytes(text)) return problem;
  if (auto problem = check_lines(text)) return problem;
  if (auto problem = Nesting(text).check()) return problem;
  const auto num_brackets =
      std::count_if(text.begin(), text.end(), [](char c) { return c == '[' || c == '{'; });
  if (num_brackets > most_brackets) {
    return DeckProblem{
        TextPlace(),
        fmt::format("the deck has {} opening brackets", core::with_commas(num_brackets)),
        fmt::format("at most {} are read", core::with_commas(most_brackets)), "Remove some."};
  }
  return std::nullopt;
}

}  // namespace finetune::deck
