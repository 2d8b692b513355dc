// SPDX-License-Identifier: Apache-2.0
#include "weights/detail/names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/text.hpp"

namespace finetune::weights {
namespace {

constexpr std::size_t longest_print = 200;
constexpr std::size_t longest_file_name = 255;

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// `text` cut to `limit` bytes, but not inside a UTF-8 sequence.
std::string_view cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80)
    --limit;
  return text.substr(0, limit);
}

}  // namespace

std::string in_quotes(std::string_view text) {
  const std::string_view shown = cut(text, longest_print);
  return "\"" + core::one_line(shown) + (shown.size() < text.size() ? "...\"" : "\"");
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool is_plain_file_name(std::string_view name) {
  if (name.empty() || name.size() > longest_file_name || !is_letter_or_digit(name[0])) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace finetune::weights
