// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/known_split.hpp"

#include <array>
#include <cstdint>

#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer {
namespace {

enum class Class : std::uint8_t { letter, number, space, line_end, other, end };

Class class_of(char32_t code) {
  if (code == '\r' || code == '\n') return Class::line_end;
  if (is_white_space(code)) return Class::space;
  if (is_letter(code)) return Class::letter;
  return is_number(code) ? Class::number : Class::other;
}

const std::array<Class, 128> ascii_classes = [] {
  std::array<Class, 128> table{};
  for (char32_t code = 0; code < 128; ++code)
    table[code] = class_of(code);
  return table;
}();

/// The character at `at` and where the next one starts; Class::end behind the text.
struct Character {
  Class kind;
  std::size_t next;
};

Character character(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {Class::end, at};
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 128) return {ascii_classes[byte], at + 1};
  const char32_t code = next_code_point(text, at);
  return {class_of(code), at};
}

bool is_blank(Class kind) {
  return kind == Class::space || kind == Class::line_end;
}

/// End of the run of `kind` that starts at `at`.
std::size_t run_of(Class kind, std::string_view text, std::size_t at) {
  for (Character c = character(text, at); c.kind == kind; c = character(text, at))
    at = c.next;
  return at;
}

/// Bytes of 's 't 're 've 'm 'll 'd at `at`, 0 if none. `text[at]` is the apostrophe.
std::size_t contraction(std::string_view text, std::size_t at, bool any_case) {
  const auto letter = [&](std::size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(at + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  // U+017F, the long s, is an s to a pattern that ignores case.
  if (any_case && text.substr(at + 1).starts_with("\u017F")) return 3;
  const char second = letter(at + 2);
  const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                   (first == 'l' && second == 'l');
  return two ? 3 : 0;
}

/// `\s+(?!\S)|\s+` for white space that starts at `begin`: all of it at the end of the text, else
/// all but its last character, which goes with the word that follows, unless it is alone.
std::size_t blanks(std::string_view text, std::size_t begin) {
  std::size_t last = begin;
  std::size_t end = begin;
  for (Character c = character(text, end); is_blank(c.kind); c = character(text, end)) {
    last = end;
    end = c.next;
  }
  return end == text.size() || last == begin ? end : last;
}

}  // namespace

std::optional<KnownSplit> KnownSplit::of(std::string_view pattern) {
  if (pattern == gpt2_pattern) return KnownSplit(Kind::gpt2, 0);
  if (pattern == llama3_pattern) return KnownSplit(Kind::tiktoken, 3);
  if (pattern == qwen2_pattern) return KnownSplit(Kind::tiktoken, 1);
  return std::nullopt;
}

std::size_t KnownSplit::gpt2(std::string_view text, std::size_t begin) const {
  if (text[begin] == '\'') {
    if (const std::size_t length = contraction(text, begin, false)) return begin + length;
  }
  // " ?" before letters, numbers or other characters.
  const std::size_t start = text[begin] == ' ' ? begin + 1 : begin;
  const Character first = character(text, start);
  if (first.kind == Class::letter || first.kind == Class::number || first.kind == Class::other)
    return run_of(first.kind, text, first.next);
  return blanks(text, begin);
}

std::size_t KnownSplit::tiktoken(std::string_view text, std::size_t begin) const {
  if (text[begin] == '\'') {
    if (const std::size_t length = contraction(text, begin, true)) return begin + length;
  }
  const Character first = character(text, begin);
  if (first.kind == Class::letter) return run_of(Class::letter, text, first.next);
  if (first.kind == Class::number) {
    std::size_t end = first.next;
    for (int digit = 1; digit < digits_; ++digit) {
      const Character c = character(text, end);
      if (c.kind != Class::number) break;
      end = c.next;
    }
    return end;
  }
  if (first.kind != Class::line_end) {  // [^\r\n\p{L}\p{N}]?\p{L}+
    const Character second = character(text, first.next);
    if (second.kind == Class::letter) return run_of(Class::letter, text, second.next);
  }
  // " ?[^\s\p{L}\p{N}]+[\r\n]*"
  const std::size_t start = text[begin] == ' ' ? begin + 1 : begin;
  if (character(text, start).kind == Class::other)
    return run_of(Class::line_end, text, run_of(Class::other, text, start));
  // "\s*[\r\n]+": white space up to the last line end in it.
  std::size_t after_line_end = begin;
  std::size_t end = begin;
  for (Character c = character(text, end); is_blank(c.kind); c = character(text, end)) {
    end = c.next;
    if (c.kind == Class::line_end) after_line_end = end;
  }
  return after_line_end > begin ? after_line_end : blanks(text, begin);
}

}  // namespace finetune::tokenizer
