#pragma once
// SPDX-License-Identifier: Apache-2.0
// Hand-written matchers for the three patterns that nearly all byte-level models use. They find
// what the regular expression finds, several times faster (a test compares the two).

#include <cstddef>
#include <optional>
#include <string_view>

#include "tokenizer/detail/regex.hpp"

namespace finetune::tokenizer {

class KnownSplit {
 public:
  /// The pattern built into ByteLevel (GPT-2).
  static constexpr std::string_view gpt2_pattern =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  static constexpr std::string_view llama3_pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static constexpr std::string_view qwen2_pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

  /// Nothing if `pattern` is not one of them.
  static std::optional<KnownSplit> of(std::string_view pattern);

  /// Visits all matches in order. They cover every byte: each character is a letter, a number,
  /// white space or something else, and each of these is matched.
  template <typename Visit>
  void each(std::string_view text, const Visit& visit) const {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = kind_ == Kind::gpt2 ? gpt2(text, begin) : tiktoken(text, begin);
      visit(ByteRange{begin, end});
      begin = end;
    }
  }

 private:
  enum class Kind { gpt2, tiktoken };
  KnownSplit(Kind kind, int digits) : kind_(kind), digits_(digits) {}

  /// Ends of the match that begins at `begin`.
  std::size_t gpt2(std::string_view text, std::size_t begin) const;
  std::size_t tiktoken(std::string_view text, std::size_t begin) const;

  Kind kind_;
  int digits_;  // the longest run of numbers
};

}  // namespace finetune::tokenizer
