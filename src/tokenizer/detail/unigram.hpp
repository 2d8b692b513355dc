#pragma once
// SPDX-License-Identifier: Apache-2.0
// Unigram language model: the pieces of a word whose scores add up to most (Kudo 2018, arXiv
// 1804.10959).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/detail/json_node.hpp"
#include "tokenizer/detail/vocabulary.hpp"

namespace finetune::tokenizer {

class Unigram {
 public:
  /// The best way to reach a byte of the text.
  struct Node {
    double score;
    std::int32_t id;
    std::int32_t begin;  // of its last piece, -1: not reached
  };
  /// Buffers of one call, kept between words.
  struct Scratch {
    std::vector<Node> best;
    std::vector<Node> path;
  };

  struct Options {
    std::optional<std::int32_t> unknown;
    bool byte_fallback = false;
    /// SentencePiece adds scores in single precision, the Hugging Face library in double.
    bool single_precision = false;
  };

  /// Reads the value of "model" in tokenizer.json.
  /// Throws: ErrorKind::input for pieces that occur twice, scores that are no numbers, and ids that
  /// do not exist.
  static Unigram read(const JsonNode& node);

  /// `scores`: one for each id. A piece without `usable` is never found in text.
  Unigram(std::unique_ptr<Vocabulary> pieces, std::vector<double> scores,
          const std::vector<bool>& usable, const Options& options, const JsonNode& place);

  /// Appends the ids of `word`. Thread-safe with a `scratch` a thread.
  /// Throws: ErrorKind::input for a character without a piece if there is no unknown token.
  void encode(std::string_view word, std::vector<std::int32_t>& ids, Scratch& scratch) const;

  const Vocabulary& pieces() const { return *pieces_; }

 private:
  void make_trie(const std::vector<bool>& usable, const JsonNode& place);
  void reach(std::string_view word, std::size_t begin, std::vector<Node>& best) const;
  void offer(Node& node, double score, std::int32_t id, std::size_t begin) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;

  std::unique_ptr<Vocabulary> pieces_;
  std::vector<double> scores_;
  Options options_;
  double unknown_score_ = 0;
  std::vector<std::int32_t> fallback_;  // ids of <0x00> .. <0xFF>, none where missing
  // (node, byte) -> (1 + id of the piece that ends there or 0, node)
  std::unique_ptr<MergeTable> trie_;
};

}  // namespace finetune::tokenizer
