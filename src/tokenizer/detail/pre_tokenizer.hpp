#pragma once
// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizer of tokenizer.json: cuts text into the words that the model encodes one by one.

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/detail/json_node.hpp"
#include "tokenizer/detail/known_split.hpp"
#include "tokenizer/detail/normalizer.hpp"

namespace finetune::tokenizer {

/// Takes words in the order of the text. The view is good during the call only.
class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void take(std::string_view word) = 0;
};

/// What becomes of a match when text is cut at matches.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// A chain of stages. A word runs through all of them before the next one starts, so nothing is
/// collected in lists.
class PreTokenizer {
 public:
  /// Reads the value of "pre_tokenizer"; nothing for null.
  static PreTokenizer read(const std::optional<JsonNode>& node);

  /// Cuts text at the matches of `pattern` into words of bytes. `place` begins error messages.
  static PreTokenizer of(const std::string& pattern, const std::string& place);

  /// Cuts `text`. `starts_text`: its first byte is the first of the whole text that is encoded.
  /// `prefix` decides whether a prefix may be put there (it always may elsewhere).
  void run(std::string_view text, bool starts_text, Prefix prefix, Matcher& matcher,
           WordSink& sink) const;

  /// Whether words are to be looked up byte by byte (ByteLevel) rather than by characters.
  bool byte_level() const { return byte_level_; }

 private:
  struct Split {
    std::variant<Pattern, KnownSplit> pattern;
    Behavior behavior;
    bool invert;
  };
  struct AddSpace {};  // ByteLevel's add_prefix_space
  struct Metaspace {
    enum class Scheme { first, always, never };
    Scheme scheme;
    std::string replacement;
  };
  using Stage = std::variant<Split, AddSpace, Metaspace>;
  struct Run;

  void add(const JsonNode& node);
  void add_byte_level(const JsonNode& node);
  void add_metaspace(const JsonNode& node);
  void add_split(const JsonNode& node);
  void add_regex(const std::string& pattern, const std::string& place, Behavior behavior,
                 bool invert);

  void stage(std::size_t index, std::string_view piece, bool starts_text, Run& run) const;
  void split(const Split& stage, std::size_t index, std::string_view piece, bool starts_text,
             Run& run) const;

  std::vector<Stage> stages_;
  bool byte_level_ = false;
};

}  // namespace finetune::tokenizer
