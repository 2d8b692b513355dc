// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/base64.hpp"

#include <array>
#include <cstdint>

namespace finetune::tokenizer {
namespace {

const std::array<int, 256> values = [] {
  std::array<int, 256> table{};
  table.fill(-1);
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < digits.size(); ++i)
    table[static_cast<unsigned char>(digits[i])] = static_cast<int>(i);
  return table;
}();

}  // namespace

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding)
    text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t held = 0;
  int held_bits = 0;
  for (const char c : text) {
    const int value = values[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    held = held << 6 | static_cast<std::uint32_t>(value);
    held_bits += 6;
    if (held_bits < 8) continue;
    held_bits -= 8;
    bytes += static_cast<char>(held >> held_bits & 0xFF);
  }
  return bytes;
}

}  // namespace finetune::tokenizer
