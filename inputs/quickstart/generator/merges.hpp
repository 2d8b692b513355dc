#pragma once
// SPDX-License-Identifier: Apache-2.0
// Learns the merges of a byte-level BPE tokenizer from text.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace finetune::quickstart {

/// A vocabulary: single bytes first, in `byte_order`, then one token a merge.
struct Merges {
  std::vector<std::pair<int, int>> pairs;  ///< token numbers, in the order they were learned
  std::vector<std::string> tokens;         ///< the bytes of every token
};

/// The words of `text` as the Llama 3 split pattern finds them in ASCII text.
/// Throws: ErrorKind::bug for bytes beyond ASCII.
std::vector<std::string_view> split_words(std::string_view text);

/// Counts words, then merges the most frequent pair again and again (ties: the smaller pair) until
/// there are `num_tokens` tokens. Source: Sennrich et al. 2016, "Neural Machine Translation of Rare
/// Words with Subword Units" (arXiv 1508.07909).
class MergeLearner {
 public:
  void read(std::string_view text);
  Merges learn(std::size_t num_tokens) const;

 private:
  std::map<std::string, std::int64_t, std::less<>> count_of_word_;
};

/// The 256 bytes in the order of a byte-level vocabulary: printable ones first.
const std::array<unsigned char, 256>& byte_order();

/// The character that stands for `byte` in a byte-level vocabulary, in UTF-8.
std::string byte_character(unsigned char byte);

}  // namespace finetune::quickstart
