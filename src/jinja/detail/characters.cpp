// SPDX-License-Identifier: Apache-2.0
#include "jinja/detail/characters.hpp"

#include <algorithm>

namespace finetune::jinja {
namespace {

/// Bytes of the character that begins with `text`.
std::size_t length_of(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text.front());
  const std::size_t length = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
  if (length > text.size()) return 1;
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 1;
  return length;
}

template <typename F>
std::string_view strip(std::string_view text, Ends ends, const F& is_outside) {
  while (ends != Ends::right && !text.empty()) {
    const std::string_view first = first_character(text);
    if (!is_outside(first)) break;
    text.remove_prefix(first.size());
  }
  while (ends != Ends::left && !text.empty()) {
    const std::string_view last = last_character(text);
    if (!is_outside(last)) break;
    text.remove_suffix(last.size());
  }
  return text;
}

}  // namespace

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const std::size_t length = length_of(text);
    all.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return all;
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, length_of(text));
}

std::string_view last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80)
    --begin;
  return text.substr(begin);
}

std::int64_t num_characters(std::string_view text) {
  std::int64_t number = 0;
  for (; !text.empty(); ++number)
    text.remove_prefix(length_of(text));
  return number;
}

char32_t code_point(std::string_view character) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(character[i]));
  };
  switch (character.size()) {
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    case 4:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
             (byte(3) & 0x3F);
    default:
      return character.empty() ? 0 : byte(0);
  }
}

std::string utf8_of(char32_t c) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::string_view stripped(std::string_view text, Ends ends) {
  return strip(text, ends, [](std::string_view c) { return is_space(code_point(c)); });
}

std::string_view stripped(std::string_view text, Ends ends, std::string_view chars) {
  const auto of = characters_of(chars);
  return strip(text, ends,
               [&](std::string_view c) { return std::ranges::find(of, c) != of.end(); });
}

}  // namespace finetune::jinja
