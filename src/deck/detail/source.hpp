#pragma once
// SPDX-License-Identifier: Apache-2.0
// The text of a deck and places in it, for messages that point at what they are about.

#include <cstdint>
#include <string>
#include <string_view>

namespace finetune::deck {

/// Where something stands: in a line of the deck, in an argument of the command line, or (line 0)
/// nowhere in particular.
struct TextPlace {
  std::int64_t line = 0;    ///< from 1
  std::int64_t column = 0;  ///< first byte, from 1; 0 if only the line is known
  std::int64_t width = 0;   ///< bytes; may reach over the end of the line
  std::string argument;     ///< "key=value"; empty for places in the deck

  TextPlace() = default;
  explicit TextPlace(std::int64_t its_line, std::int64_t its_column = 0, std::int64_t its_width = 0)
      : line(its_line), column(its_column), width(its_width) {}
  static TextPlace in_argument(std::string argument);
};

struct SourceText {
  std::string file_name;
  std::string text;

  /// Line `number` (from 1) without its end; empty if there is none.
  std::string_view line(std::int64_t number) const;

  /// "input.toml:14", "command line: train.seed=x" or "input.toml".
  std::string where(const TextPlace& place) const;

  /// The line of `place` and a second line with a caret under it, both indented. Long lines are cut
  /// around the place. Empty where there is no line to show.
  std::string excerpt(const TextPlace& place) const;
};

/// The first `limit_bytes` of `text` at most, cut between characters, with "..." if anything was
/// cut. `text` is UTF-8.
std::string clipped(std::string_view text, std::size_t limit_bytes);

}  // namespace finetune::deck
