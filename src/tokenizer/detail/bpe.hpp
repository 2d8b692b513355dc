#pragma once
// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one word: the pair with the lowest rank merges first (Sennrich et al. 2016,
// arXiv 1508.07909).

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tokenizer/detail/json_node.hpp"
#include "tokenizer/detail/vocabulary.hpp"
#include "tokenizer/detail/word_cache.hpp"

namespace finetune::tokenizer {

class Bpe {
 public:
  /// Buffers of one call, kept between words.
  struct Scratch {
    struct Symbol {
      std::int32_t id;
      std::int32_t previous;
      std::int32_t next;
      bool alive;
    };
    struct Candidate {
      std::uint64_t order;  // rank, then position
      std::int32_t id;      // of the merged piece
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    WordCache cache;  // of this tokenizer's words
  };

  /// Reads the value of "model". `byte_level`: words are bytes, and the pieces of the file spell
  /// them with GPT-2's alphabet; otherwise words are characters.
  /// Throws: ErrorKind::input for another type of model, options that are not supported, ids that
  /// are not unique, and merges of pieces that do not exist.
  static Bpe read(const JsonNode& node, bool byte_level);

  struct Options {
    bool byte_level = false;     // symbols are bytes rather than characters
    bool whole_words = false;    // a word that is a piece is that piece, without merging
    bool fuse_unknown = false;   // neighbouring unknown characters are one token
    bool byte_fallback = false;  // unknown characters are spelled as <0x00> .. <0xFF>
    std::optional<std::int32_t> unknown;
  };

  /// Any two neighbours merge that spell a piece together, the one of the lowest rank first: so
  /// tiktoken and SentencePiece do it. `ranks`: one for each id, `never` for pieces that do not
  /// take part. With `byte_level` pieces are the bytes themselves. Throws: ErrorKind::input at
  /// `place` for pieces too long to try all their cuts.
  static Bpe of_ranks(std::unique_ptr<Vocabulary> pieces, const std::vector<std::uint32_t>& ranks,
                      const Options& options, const JsonNode& place);
  static constexpr std::uint32_t never = ~std::uint32_t{0};

  /// Appends the ids of `word`. Time O(n log n). Thread-safe with a `scratch` a thread.
  /// Throws: ErrorKind::input for a character that neither the vocabulary nor a fallback expresses.
  void encode(std::string_view word, std::vector<std::int32_t>& ids, Scratch& scratch) const;

  /// Pieces as written in the file. Ids of added tokens may lie between them or above.
  const Vocabulary& pieces() const { return *pieces_; }

 private:
  struct Unknown;

  Bpe() = default;
  void read_options(const JsonNode& node);
  void read_vocabulary(const JsonNode& node);
  void read_merges(const JsonNode& node);
  void add_merge(const JsonNode& merge, std::string_view left, std::string_view right,
                 std::uint32_t rank);
  void add_seam(std::string_view left, std::string_view right);
  void find_cuts(const std::vector<std::uint32_t>& ranks, const JsonNode& place);
  void read_fallback();
  void make_words(const JsonNode& node);
  void make_whole();

  std::size_t word_end(std::string_view text, std::size_t begin) const;
  void word(std::string_view text, Unknown& unknown, std::vector<std::int32_t>& ids,
            Scratch& scratch) const;
  void cut_word(std::string_view text, Unknown& unknown, std::vector<std::int32_t>& ids,
                Scratch& scratch) const;
  bool joined(char32_t left, char32_t right) const;
  std::size_t segment_end(std::string_view word, std::size_t begin) const;
  void segment(std::string_view text, Unknown& unknown, std::vector<std::int32_t>& ids,
               Scratch& scratch) const;
  void symbols_of(std::string_view text, Unknown& unknown, Scratch& scratch) const;
  void unknown_symbol(std::string_view text, Unknown& unknown, Scratch& scratch) const;
  void merge_few(Scratch& scratch) const;
  void merge_all(Scratch& scratch) const;

  bool byte_level_ = false;
  bool ignore_merges_ = false;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  std::optional<std::int32_t> unknown_;
  std::vector<std::int32_t> fallback_;  // ids of <0x00> .. <0xFF>, none where missing

  std::unique_ptr<Vocabulary> pieces_;
  std::unique_ptr<Vocabulary> bytes_;  // byte-level: raw bytes -> id
  const Vocabulary* words_ = nullptr;  // what words are looked up in: bytes_ or pieces_
  std::unique_ptr<MergeTable> merges_;

  // Where a word may be cut: two neighbouring characters that stand at the seam of no merge never
  // come together. With this a text without spaces, or a whole document in SentencePiece style,
  // falls into short segments, exactly.
  bool can_cut_ = false;
  bool words_begin_at_marks_ = true;  // nothing but a mark (U+2581) merges with a mark behind it
  std::vector<bool> merges_on_;       // [id] whether some merge takes it
  std::vector<bool> ascii_seams_;     // [128 x 128]
  std::unordered_set<std::uint64_t> seams_;

  // Whether encoding the text of a piece gives that piece alone. Filled in as pieces are met; every
  // thread finds the same value, so relaxed order is enough.
  enum class Whole : std::uint8_t { not_known, yes, no };
  std::unique_ptr<std::atomic<Whole>[]> whole_;
};

}  // namespace finetune::tokenizer
