#pragma once
// SPDX-License-Identifier: Apache-2.0
// Code points of text known to be valid UTF-8, and the few character classes tokenizers need.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace finetune::tokenizer {

/// Bytes of the code point that starts with `lead`.
inline std::size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The code point at `i`, which moves past it. `text` must be valid UTF-8.
inline char32_t next_code_point(std::string_view text, std::size_t& i) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[i + k]); };
  const char32_t lead = byte(0);
  char32_t code = lead;
  const std::size_t length = utf8_length(text[i]);
  if (length == 2) code = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  if (length == 3) code = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  if (length == 4) {
    code = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
  i += length;
  return code;
}

/// Start of the code point that ends before `i` (i > 0).
inline std::size_t previous_start(std::string_view text, std::size_t i) {
  do {
    --i;
  } while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80);
  return i;
}

void append_utf8(std::string& out, char32_t code);

/// Unicode property White_Space.
bool is_white_space(char32_t code);
/// General category L.
bool is_letter(char32_t code);
/// General category N.
bool is_number(char32_t code);
/// What `\w` matches: letters, marks, digits, connectors, joiners and other alphabetic characters.
bool is_word(char32_t code);

/// The printable character that stands for each byte in byte-level vocabularies (GPT-2): bytes that
/// print stand for themselves, the others for U+0100, U+0101, ... in order.
const std::array<char32_t, 256>& byte_alphabet();

/// The byte `code` stands for, -1 if none.
int byte_of(char32_t code);

/// The bytes a byte-level token stands for; false if a character of it stands for none.
bool to_bytes(std::string_view token, std::string& bytes);

}  // namespace finetune::tokenizer
