#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in the text itself, before the model sees it: special and other added ones.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/detail/json_node.hpp"
#include "tokenizer/detail/normalizer.hpp"
#include "tokenizer/detail/vocabulary.hpp"

namespace finetune::tokenizer {

struct AddedToken {
  std::int32_t id;
  std::string content;
  bool single_word;  // only where no letter is next to it
  bool lstrip;       // takes the white space before it
  bool rstrip;       // takes the white space after it
  bool normalized;   // looked for after normalisation rather than before
  bool special;      // left out of decoded text on request
};

/// Where in a text the names of special tokens stand for these tokens.
struct SpecialNames {
  /// `passed_over`: found, and left as text together with what they overlap, as the Hugging Face
  /// library does when asked to split special tokens.
  enum class Count { everywhere, passed_over, inside };
  Count count = Count::everywhere;
  std::vector<ByteRange> ranges;  // `inside` these only: in order, with gaps between them

  bool allow(std::size_t begin, std::size_t end) const;
  /// The same for a part of the text.
  SpecialNames within(std::size_t begin, std::size_t end) const;
};

/// Finds added tokens in a text: the leftmost first, of several there the longest.
class TokenMatcher {
 public:
  /// `patterns`: what to look for, and the token it stands for.
  /// Throws: ErrorKind::input, at `place`, if a text is empty or occurs twice.
  TokenMatcher(std::vector<std::pair<std::string, const AddedToken*>> patterns,
               const JsonNode& place);

  /// Visits all of `text` in order: `visit(piece, begin, token)`, where token is nullptr for text
  /// between tokens.
  template <typename Visit>
  void split(std::string_view text, const SpecialNames& special, const Visit& visit) const;

  bool is_empty() const { return patterns_.empty(); }
  /// Whether a special token is among those looked for.
  bool has_special() const;
  /// Whether the name of a special token stands in `text`, even inside of another token's.
  bool names_special(std::string_view text) const;

 private:
  struct Found {
    std::size_t begin;
    std::size_t end;
    const AddedToken* token;  // nullptr: nothing found
  };

  Found find(std::string_view text, std::size_t from, const SpecialNames& special) const;
  bool accepts(std::string_view text, const Found& found, const SpecialNames& special) const;

  std::vector<std::pair<std::string, const AddedToken*>> patterns_;  // sorted
  std::array<bool, 256> starts_{};
};

std::size_t white_space_before(std::string_view text, std::size_t end);
std::size_t white_space_after(std::string_view text, std::size_t begin);

class AddedTokens {
 public:
  /// Reads the list "added_tokens" of `root`. Throws: ErrorKind::input for tokens without text,
  /// ids that are taken, and ids that leave gaps.
  static AddedTokens read(const JsonNode& root, const Vocabulary& pieces,
                          const Normalizer& normalizer);

  /// `tokens` of another kind of file. Normalised ones are written as they look in
  /// normalised text. Throws as `read` does, at `place`.
  static AddedTokens of(std::vector<AddedToken> tokens, const Vocabulary& pieces,
                        const JsonNode& place);

  AddedTokens(AddedTokens&&) = default;  // not copied: the matchers point into `tokens_`
  AddedTokens& operator=(AddedTokens&&) = default;

  /// Tokens looked for in the text as it is, and in normalised text.
  const TokenMatcher& before_normalizer() const { return before_; }
  const TokenMatcher& after_normalizer() const { return after_; }

  /// nullptr if `id` is not an added token.
  const AddedToken* find(std::int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  /// What the decoder is given for an added token.
  std::string_view decoded(const AddedToken& token) const;

  /// One more than the largest id of pieces and added tokens.
  std::int32_t vocab_size() const { return vocab_size_; }

 private:
  AddedTokens(std::vector<AddedToken> tokens, std::vector<std::string> decoded,
              std::int32_t vocab_size, const JsonNode& place);
  std::vector<std::pair<std::string, const AddedToken*>> patterns(bool normalized) const;

  std::vector<AddedToken> tokens_;  // by id
  std::vector<std::string> decoded_;
  std::int32_t vocab_size_;
  TokenMatcher before_;
  TokenMatcher after_;
};

template <typename Visit>
void TokenMatcher::split(std::string_view text, const SpecialNames& special,
                         const Visit& visit) const {
  std::size_t done = 0;
  const auto between = [&](std::size_t end) {
    if (done < end) visit(text.substr(done, end - done), done, nullptr);
  };
  std::size_t from = 0;
  for (Found found = find(text, from, special); found.token != nullptr;
       found = find(text, from, special)) {
    from = found.end;
    if (!accepts(text, found, special)) continue;
    std::size_t begin = found.begin;
    // Only what is left of the text is looked at: tokens that are white space themselves would
    // look at all of it each time.
    if (found.token->lstrip && begin > done)
      begin = done + white_space_before(text.substr(done), begin - done);
    between(begin);
    visit(text.substr(found.begin, found.end - found.begin), begin, found.token);
    done = found.token->rstrip ? white_space_after(text, found.end) : found.end;
  }
  between(text.size());
}

}  // namespace finetune::tokenizer
