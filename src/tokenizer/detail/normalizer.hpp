#pragma once
// SPDX-License-Identifier: Apache-2.0
// The normalizer of tokenizer.json: what happens to text before it is cut into words.

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/detail/charsmap.hpp"
#include "tokenizer/detail/json_node.hpp"
#include "tokenizer/detail/regex.hpp"
#include "tokenizer/detail/sentencepiece_normalizer.hpp"

namespace finetune::tokenizer {

/// Whether a prefix that marks the start of a text may be put before a piece.
enum class Prefix { allowed, left_out };

/// What is looked for in a text: a fixed string or an expression.
class Pattern {
 public:
  /// `{"String": "..."}` or `{"Regex": "..."}`.
  static Pattern read(const JsonNode& node);
  explicit Pattern(Regex regex) : what_(std::move(regex)) {}
  explicit Pattern(std::string text) : what_(std::move(text)) {}

  /// The leftmost match at or after `from`.
  std::optional<ByteRange> find(std::string_view text, std::size_t from, Matcher& matcher) const;

  /// Every byte of `text` is part of exactly one range; `visit(range, is_match)` in order. An empty
  /// match is visited unless it touches the match before it.
  template <typename Visit>
  void each(std::string_view text, Matcher& matcher, const Visit& visit) const;

 private:
  std::variant<std::string, Regex> what_;
};

/// `text` with every match of `pattern` replaced.
std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content,
                        Matcher& matcher);

/// A chain of steps; without any it changes nothing. Normalisation forms follow the Unicode version
/// of utf8proc; the Hugging Face library's are of Unicode 10, so the order of neighbouring marks
/// may differ for the hundred or so that were assigned since.
class Normalizer {
 public:
  /// Reads the value of "normalizer"; nothing for null.
  static Normalizer read(const std::optional<JsonNode>& node);
  static Normalizer composed();  // NFC
  static Normalizer of(SentencePieceNormalizer step);

  /// The normalised `text`: a view of it if nothing changed, else of `buffer`.
  std::string_view apply(std::string_view text, Prefix prefix, std::string& buffer,
                         Matcher& matcher) const;

 private:
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Form {
    int options;  // of utf8proc
    bool composed;
  };
  struct Lowercase {};
  struct Strip {
    bool left;
    bool right;
  };
  struct Precompiled {
    Charsmap map;
  };
  struct Nmt {};
  struct StripAccents {};
  using Step = std::variant<Prepend, Replace, Form, Lowercase, Strip, Precompiled, Nmt,
                            StripAccents, SentencePieceNormalizer>;

  void add(const JsonNode& node);

  std::vector<Step> steps_;
};

template <typename Visit>
void Pattern::each(std::string_view text, Matcher& matcher, const Visit& visit) const {
  std::size_t visited = 0;
  std::size_t from = 0;
  std::optional<std::size_t> last_end;
  while (from <= text.size()) {
    const std::optional<ByteRange> match = find(text, from, matcher);
    if (!match) break;
    if (match->begin == match->end && last_end == match->end) {
      // The same empty match would be found for ever.
      do {
        ++from;
      } while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80);
      continue;
    }
    if (visited < match->begin) visit(ByteRange{visited, match->begin}, false);
    visit(*match, true);
    visited = from = match->end;
    last_end = match->end;
  }
  if (visited < text.size()) visit(ByteRange{visited, text.size()}, false);
}

}  // namespace finetune::tokenizer
