#pragma once
// SPDX-License-Identifier: Apache-2.0
// HTML, put together so that no text of a run becomes markup.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace finetune::report::detail {

/// What a cell holds: text of any kind, escaped when it is written.
struct Cell {
  std::string text;
  bool is_number = false;  ///< aligned on the right
  bool is_long = false;    ///< keeps its line breaks
};

inline Cell text(std::string content) {
  return {std::move(content), false, false};
}
inline Cell number(std::string content) {
  return {std::move(content), true, false};
}
inline Cell long_text(std::string content) {
  return {std::move(content), false, true};
}

using TableRow = std::vector<Cell>;

/// Empty without rows. A column is one of numbers where the first row has one.
std::string table(const std::vector<std::string>& head, const std::vector<TableRow>& rows);

/// Names and values side by side; those without value are left out.
std::string facts(const std::vector<std::pair<std::string, std::string>>& rows);

/// `content` is markup.
std::string section(std::string_view title, const std::string& content);

/// The whole page around `body`, which is markup.
std::string document(std::string_view title, const std::string& body);

}  // namespace finetune::report::detail
