#pragma once
// SPDX-License-Identifier: Apache-2.0
// SentencePiece's precompiled character map: a double-array trie of texts and what replaces them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

class Charsmap {
 public:
  /// `blob`: the trie's size in bytes (32 bits), the trie, then the replacements, each ended by a
  /// NUL. Nothing if it is none: a size that does not fit, or a replacement that is not UTF-8.
  static std::optional<Charsmap> read(std::string_view blob);

  struct Match {
    std::size_t length;  // of what is replaced, in bytes
    std::string_view replacement;
  };
  /// What starts `text` and has a replacement: the longest, or the shortest.
  std::optional<Match> longest(std::string_view text) const { return match(text, false); }
  std::optional<Match> shortest(std::string_view text) const { return match(text, true); }

  /// `text` as the Hugging Face library maps it: a cluster of characters (Unicode Standard Annex
  /// 29) of up to five bytes by what its start maps to, otherwise character by character.
  std::string map_clusters(std::string_view text) const;

 private:
  Charsmap() = default;
  std::optional<Match> match(std::string_view text, bool shortest) const;
  std::string_view replacement(std::uint32_t offset) const;
  void append_mapped(std::string& out, std::string_view cluster) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace finetune::tokenizer
