#pragma once
// SPDX-License-Identifier: Apache-2.0
// Lines of texts: those that a text has, and those that it is wrapped into, as in Python.

#include <cstdint>
#include <string_view>
#include <vector>

namespace finetune::jinja::detail {

/// A line, and the line end behind it, which only the last may lack. Both point into the text.
struct Line {
  std::string_view text, end;
};

/// As Python's str.splitlines: at \n, \r, \r\n, \v, \f, and at the separators of ASCII and Unicode.
std::vector<Line> lines_of(std::string_view text);

struct WrapStyle {
  std::int64_t width = 0;  ///< in characters; at least 1
  bool breaks_long_words = true;
  bool breaks_on_hyphens = true;
};

/// The parts of a line that are at most as wide, without the white space between them, as Python's
/// textwrap.wrap with neither expand_tabs nor replace_whitespace. They point into the line; none if
/// there is nothing but white space in it.
std::vector<std::string_view> wrapped(std::string_view line, const WrapStyle& style);

}  // namespace finetune::jinja::detail
