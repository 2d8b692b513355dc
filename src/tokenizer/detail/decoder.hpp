#pragma once
// SPDX-License-Identifier: Apache-2.0
// The decoder of tokenizer.json: from pieces back to text.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/detail/json_node.hpp"
#include "tokenizer/detail/normalizer.hpp"

namespace finetune::tokenizer {

class Decoder {
 public:
  /// Reads the value of "decoder"; null joins pieces with spaces, as the Hugging Face library does.
  static Decoder read(const std::optional<JsonNode>& node);

  /// Pieces are bytes, as in tiktoken's files.
  static Decoder of_bytes();
  /// Pieces of SentencePiece: U+2581 for spaces, <0x41> for bytes. `drops_prefix`: the space before
  /// the first word is not of the text.
  static Decoder of_sentencepiece(bool drops_prefix);

  /// The text of `pieces`, always valid UTF-8.
  std::string decode(std::vector<std::string> pieces) const;

 private:
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct ByteFallback {};
  struct Fuse {};
  struct ByteLevel {};
  struct Strip {
    std::string content;
    std::int32_t start;
    std::int32_t stop;
  };
  struct Metaspace {
    std::string replacement;
    bool drops_first;
  };
  struct Bytes {};
  using Step = std::variant<Replace, ByteFallback, Fuse, ByteLevel, Strip, Metaspace, Bytes>;

  void add(const JsonNode& node);

  std::vector<Step> steps_;
  bool join_with_spaces_ = false;
};

/// `bytes` with each part that is not valid UTF-8 replaced by U+FFFD: one for every longest start
/// of a character (Unicode 15, section 3.9, "substitution of maximal subparts").
std::string lossy_utf8(std::string_view bytes);

}  // namespace finetune::tokenizer
