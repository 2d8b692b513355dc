// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/charsmap.hpp"

#include <utf8proc.h>

#include "core/text.hpp"
#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer {
namespace {

std::uint32_t little_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (unsigned i = 0; i < 4; ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

// Units of Darts-clone (https://github.com/s-yata/darts-clone): a label or value, and the offset of
// the children, all in 32 bits.
bool has_leaf(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
std::uint32_t value_of(std::uint32_t unit) {
  return unit & 0x7FFFFFFFU;
}
std::uint32_t label_of(std::uint32_t unit) {
  return unit & 0x800000FFU;
}
std::uint32_t offset_of(std::uint32_t unit) {
  return unit >> 10 << ((unit & 0x200U) >> 6);
}

}  // namespace

std::optional<Charsmap> Charsmap::read(std::string_view blob) {
  if (blob.size() < 4) return std::nullopt;
  const std::uint32_t trie_bytes = little_endian(blob, 0);
  if (trie_bytes > blob.size() - 4 || trie_bytes % 4 != 0 || trie_bytes == 0) return std::nullopt;
  Charsmap map;
  map.units_.reserve(trie_bytes / 4);
  for (std::size_t at = 4; at < 4 + std::size_t{trie_bytes}; at += 4)
    map.units_.push_back(little_endian(blob, at));
  map.replacements_ = blob.substr(4 + std::size_t{trie_bytes});
  if (core::invalid_utf8(map.replacements_)) return std::nullopt;
  return map;
}

std::string_view Charsmap::replacement(std::uint32_t offset) const {
  if (offset >= replacements_.size()) return {};
  const std::string_view rest = std::string_view(replacements_).substr(offset);
  // An offset into the middle of a character would give text that is no text.
  if ((static_cast<unsigned char>(rest[0]) & 0xC0) == 0x80) return {};
  return rest.substr(0, rest.find('\0'));
}

std::optional<Charsmap::Match> Charsmap::match(std::string_view text, bool shortest) const {
  std::optional<Match> found;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit) || node >= units_.size()) continue;
    // The rest of a character that was cut in the middle would be no text.
    if (i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xC0) == 0x80) continue;
    found = {i + 1, replacement(value_of(units_[node]))};
    if (shortest) break;
  }
  return found;
}

void Charsmap::append_mapped(std::string& out, std::string_view cluster) const {
  constexpr std::size_t longest_whole = 5;
  if (cluster.size() <= longest_whole) {
    if (const auto found = shortest(cluster)) {
      out += found->replacement;
      return;
    }
  }
  for (std::size_t i = 0; i < cluster.size();) {
    const std::string_view character = cluster.substr(i, utf8_length(cluster[i]));
    const auto found = shortest(character);
    out += found ? found->replacement : character;
    i += character.size();
  }
}

std::string Charsmap::map_clusters(std::string_view text) const {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  std::size_t begin = 0;
  utf8proc_int32_t state = 0;
  char32_t last = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t start = i;
    const char32_t code = next_code_point(text, i);
    const bool breaks =
        start == 0 || utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last),
                                                       static_cast<utf8proc_int32_t>(code), &state);
    if (breaks && start > 0) {
      append_mapped(out, text.substr(begin, start - begin));
      begin = start;
    }
    last = code;
  }
  if (begin < text.size()) append_mapped(out, text.substr(begin));
  return out;
}

}  // namespace finetune::tokenizer
