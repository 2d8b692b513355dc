#pragma once
// SPDX-License-Identifier: Apache-2.0
// Letters and words of texts. A letter becomes one letter, where Python makes two of a few (of ß).

#include <cstdint>
#include <string>
#include <string_view>

#include "jinja/detail/characters.hpp"
#include "jinja/text.hpp"

namespace finetune::jinja::detail {

inline bool is_digit(char32_t c) {
  return c >= '0' && c <= '9';
}
/// Of Unicode's letters, as Python's str.isalpha.
bool is_letter(char32_t c);
/// A letter, a number of any script, or _: what \w means in Python's regular expressions.
bool is_word(char32_t c);
/// A digit of any script: \d.
bool is_decimal(char32_t c);
/// As Python's repr has it: what it does not escape.
bool is_printable(char32_t c);

template <typename F>
bool is_all(std::string_view text, const F& is_one) {
  for (const std::string_view character : characters_of(text))
    if (!is_one(code_point(character))) return false;
  return !text.empty();
}

std::string upper(std::string_view text);
std::string lower(std::string_view text);
/// The first letter upper case, the others lower case.
std::string capitalised(std::string_view text);
/// The same of every word, as Python's str.title: a word is letters in a row.
std::string titled(std::string_view text);
/// At most `most` times; negative: everywhere.
Text replaced(const Text& text, std::string_view old, const Text& by, std::int64_t most);

}  // namespace finetune::jinja::detail
