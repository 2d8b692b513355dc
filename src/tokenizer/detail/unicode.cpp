// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>

namespace finetune::tokenizer {
namespace {

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

struct CodeRange {
  char32_t first;
  char32_t last;
};

// Assigned by Unicode 15.1 and 16.0 (DerivedGeneralCategory.txt), after the tables of utf8proc 2.8.
constexpr std::array<CodeRange, 22> newer_letters{
    {{0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3},
     {0x10D4A, 0x10D65}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x11380, 0x11389},
     {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7},
     {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0}, {0x13460, 0x143FA},
     {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED},
     {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D}}};
constexpr std::array<CodeRange, 7> newer_numbers{{{0x10D40, 0x10D49},
                                                  {0x116D0, 0x116E3},
                                                  {0x11BF0, 0x11BF9},
                                                  {0x16130, 0x16139},
                                                  {0x16D70, 0x16D79},
                                                  {0x1CCF0, 0x1CCF9},
                                                  {0x1E5F1, 0x1E5FA}}};

template <std::size_t Count>
bool is_in(const std::array<CodeRange, Count>& ranges, char32_t code) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const CodeRange& range) {
    return code >= range.first && code <= range.last;
  });
}

bool prints(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr char32_t first_stand_in = 0x100;

}  // namespace

void append_utf8(std::string& out, char32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_white_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 0x09 && code <= 0x0D);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_letter(char32_t code) {
  const auto c = category(code);
  if (c == UTF8PROC_CATEGORY_CN) return is_in(newer_letters, code);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool is_number(char32_t code) {
  const auto c = category(code);
  if (c == UTF8PROC_CATEGORY_CN) return is_in(newer_numbers, code);
  return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool is_word(char32_t code) {
  const auto c = category(code);
  if (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL)
    return true;  // letters, marks, Nd, Nl
  if (c == UTF8PROC_CATEGORY_PC || code == 0x200C || code == 0x200D) return true;
  // Circled and squared letters are symbols that count as alphabetic (PropList Other_Alphabetic).
  return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}

const std::array<char32_t, 256>& byte_alphabet() {
  static const auto alphabet = [] {
    std::array<char32_t, 256> table{};
    char32_t next = first_stand_in;
    for (int byte = 0; byte < 256; ++byte)
      table[static_cast<std::size_t>(byte)] = prints(byte) ? static_cast<char32_t>(byte) : next++;
    return table;
  }();
  return alphabet;
}

int byte_of(char32_t code) {
  static const auto inverse = [] {
    std::array<int, 0x200> table{};
    table.fill(-1);
    for (int byte = 0; byte < 256; ++byte)
      table[byte_alphabet()[static_cast<std::size_t>(byte)]] = byte;
    return table;
  }();
  return code < inverse.size() ? inverse[code] : -1;
}

bool to_bytes(std::string_view token, std::string& bytes) {
  bytes.clear();
  for (std::size_t i = 0; i < token.size();) {
    const int byte = byte_of(next_code_point(token, i));
    if (byte < 0) return false;
    bytes += static_cast<char>(byte);
  }
  return true;
}

}  // namespace finetune::tokenizer
