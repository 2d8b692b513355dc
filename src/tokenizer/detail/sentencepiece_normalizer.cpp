// SPDX-License-Identifier: Apache-2.0
// Written after the description of SentencePiece's normalizer (github.com/google/sentencepiece,
// doc/normalization.md and src/sentencepiece_model.proto).
#include "tokenizer/detail/sentencepiece_normalizer.hpp"

#include <algorithm>

#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer {
namespace {

constexpr std::string_view space_mark = "\u2581";

}  // namespace

/// What starts `text`, and what becomes of it: a fixed symbol, something in the map, a character.
SentencePieceNormalizer::Start SentencePieceNormalizer::start_of(std::string_view text) const {
  if (fixed) {
    for (std::size_t length = std::min(longest_fixed, text.size()); length > 0; --length)
      if (fixed->find(text.substr(0, length)) != Vocabulary::none)
        return {length, text.substr(0, length)};
  }
  if (map) {
    if (const auto found = map->longest(text)) return {found->length, found->replacement};
  }
  const std::size_t length = utf8_length(text[0]);
  return {length, text.substr(0, length)};
}

std::string SentencePieceNormalizer::apply(std::string_view text, bool prefix) const {
  const std::string_view space = escape_whitespaces ? space_mark : std::string_view(" ");
  std::string out;
  out.reserve(text.size() + text.size() / 2 + space.size());
  bool after_space = remove_extra_whitespaces;
  bool started = false;
  while (!text.empty()) {
    const auto [length, becomes] = start_of(text);
    text.remove_prefix(length);
    std::string_view part = becomes;
    while (after_space && part.starts_with(' '))
      part.remove_prefix(1);
    // White space at the start alone brings no prefix.
    if (!started && (!part.empty() || !remove_extra_whitespaces || becomes != " ")) {
      started = true;
      if (prefix && add_dummy_prefix) out += space;
    }
    for (const char c : part) {
      if (c == ' ') {
        out += space;
      } else {
        out += c;
      }
    }
    if (!part.empty()) after_space = remove_extra_whitespaces && part.ends_with(' ');
  }
  while (remove_extra_whitespaces && std::string_view(out).ends_with(space))
    out.erase(out.size() - space.size());
  return out;
}

}  // namespace finetune::tokenizer
