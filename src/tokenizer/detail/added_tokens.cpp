// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/added_tokens.hpp"

#include <fmt/format.h>

#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer {
namespace {

// They are looked for at every byte of a text, so what a text may cost grows with the longest.
// (Pieces of the vocabulary are looked up whole and may be longer.)
constexpr std::size_t longest_token = 1024;

void check_token(const AddedToken& token, const Vocabulary& pieces, const JsonNode& node) {
  if (token.content.empty() || token.content.size() > longest_token) {
    node.refuse(fmt::format("a token of {} bytes", token.content.size()),
                fmt::format("1 to {} are possible", longest_token));
  }
  const std::int32_t known = pieces.find(token.content);
  const bool taken = pieces.contains(token.id) && known != token.id;
  if (taken || (known != Vocabulary::none && known != token.id)) {
    node.refuse(fmt::format("\"{}\" has id {}", token.content, token.id),
                taken ? fmt::format("that is the id of \"{}\"", pieces.piece(token.id))
                      : fmt::format("the model's vocabulary gives it {}", known),
                "The file is damaged: get it again.");
  }
}

AddedToken read_token(const JsonNode& node, const Vocabulary& pieces) {
  node.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token{node.id("id"),
                   node.text("content"),
                   node.boolean("single_word", false),
                   node.boolean("lstrip", false),
                   node.boolean("rstrip", false),
                   node.boolean("normalized", false),
                   node.boolean("special", false)};
  check_token(token, pieces, node);
  return token;
}

void sort_by_id(std::vector<AddedToken>& tokens) {
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

/// Every id below the largest must stand for something.
std::int32_t check_dense(const JsonNode& root, const Vocabulary& pieces,
                         const std::vector<AddedToken>& tokens) {
  std::int32_t next_added = 0;
  const auto count = static_cast<std::int32_t>(tokens.size());
  const auto added_is = [&](std::int32_t id) {
    return next_added < count && tokens[static_cast<std::size_t>(next_added)].id == id;
  };
  std::int32_t id = 0;
  for (;; ++id) {
    const bool added = added_is(id);
    if (added) ++next_added;
    if (added_is(id)) root.refuse(fmt::format("id {} occurs twice", id), "added tokens share it");
    if (!added && !pieces.contains(id)) break;
  }
  if (id < pieces.size() || next_added < count) {
    root.refuse(fmt::format("no token has id {}", id), "larger ids exist, and ids leave no gaps",
                "The file is damaged: get it again.");
  }
  return id;
}

}  // namespace

bool SpecialNames::allow(std::size_t begin, std::size_t end) const {
  if (count != Count::inside) return true;
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), begin,
                       [](std::size_t at, const ByteRange& r) { return at < r.end; });
  return after != ranges.end() && after->begin <= begin && end <= after->end;
}

SpecialNames SpecialNames::within(std::size_t begin, std::size_t end) const {
  SpecialNames part{count, {}};
  auto range = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                [](std::size_t at, const ByteRange& r) { return at < r.end; });
  for (; range != ranges.end() && range->begin < end; ++range)
    part.ranges.push_back(
        {std::max(range->begin, begin) - begin, std::min(range->end, end) - begin});
  return part;
}

TokenMatcher::TokenMatcher(std::vector<std::pair<std::string, const AddedToken*>> patterns,
                           const JsonNode& place)
    : patterns_(std::move(patterns)) {
  std::sort(patterns_.begin(), patterns_.end());
  const std::string* last = nullptr;
  for (const auto& [text, token] : patterns_) {
    if (text.empty() || (last != nullptr && *last == text)) {
      place.refuse(fmt::format("added token {}, \"{}\", is {}", token->id, token->content,
                               text.empty() ? "empty once normalised" : "there twice"),
                   "its id would not be defined");
    }
    last = &text;
    starts_[static_cast<unsigned char>(text.front())] = true;
  }
}

TokenMatcher::Found TokenMatcher::find(std::string_view text, std::size_t from,
                                       const SpecialNames& special) const {
  if (patterns_.empty()) return {0, 0, nullptr};
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    // Sorted texts that share their first bytes lie side by side: narrow the range byte by byte.
    auto low = patterns_.begin();
    auto high = patterns_.end();
    Found found{0, 0, nullptr};
    for (std::size_t depth = 0; begin + depth < text.size(); ++depth) {
      const auto byte = static_cast<unsigned char>(text[begin + depth]);
      const auto at_depth = [&](const auto& pattern) {
        return depth < pattern.first.size() ? static_cast<unsigned char>(pattern.first[depth]) : -1;
      };
      low = std::partition_point(low, high, [&](const auto& p) { return at_depth(p) < byte; });
      high = std::partition_point(low, high, [&](const auto& p) { return at_depth(p) == byte; });
      if (low == high) break;
      if (low->first.size() != depth + 1) continue;
      if (!low->second->special || special.allow(begin, begin + depth + 1))
        found = {begin, begin + depth + 1, low->second};
    }
    if (found.token != nullptr) return found;
  }
  return {0, 0, nullptr};
}

bool TokenMatcher::accepts(std::string_view text, const Found& found,
                           const SpecialNames& special) const {
  if (special.count == SpecialNames::Count::passed_over && found.token->special) return false;
  if (!found.token->single_word) return true;
  if (found.begin > 0) {
    std::size_t i = previous_start(text, found.begin);
    if (is_word(next_code_point(text, i))) return false;
  }
  std::size_t i = found.end;
  return i == text.size() || !is_word(next_code_point(text, i));
}

bool TokenMatcher::has_special() const {
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [](const auto& pattern) { return pattern.second->special; });
}

bool TokenMatcher::names_special(std::string_view text) const {
  // Every start is tried: a name may begin inside of another token's.
  const SpecialNames everywhere;
  for (std::size_t from = 0; from < text.size();) {
    const Found found = find(text, from, everywhere);
    if (found.token == nullptr) return false;
    if (found.token->special && accepts(text, found, everywhere)) return true;
    from = found.begin + 1;
  }
  return false;
}

std::size_t white_space_before(std::string_view text, std::size_t end) {
  while (end > 0) {
    const std::size_t start = previous_start(text, end);
    std::size_t i = start;
    if (!is_white_space(next_code_point(text, i))) break;
    end = start;
  }
  return end;
}

std::size_t white_space_after(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    std::size_t i = begin;
    if (!is_white_space(next_code_point(text, i))) break;
    begin = i;
  }
  return begin;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, std::vector<std::string> decoded,
                         std::int32_t vocab_size, const JsonNode& place)
    : tokens_(std::move(tokens)),
      decoded_(std::move(decoded)),
      vocab_size_(vocab_size),
      before_(patterns(false), place),
      after_(patterns(true), place) {}

std::vector<std::pair<std::string, const AddedToken*>> AddedTokens::patterns(
    bool normalized) const {
  std::vector<std::pair<std::string, const AddedToken*>> result;
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (tokens_[i].normalized == normalized) result.emplace_back(decoded_[i], &tokens_[i]);
  return result;
}

AddedTokens AddedTokens::read(const JsonNode& root, const Vocabulary& pieces,
                              const Normalizer& normalizer) {
  std::vector<AddedToken> tokens;
  if (const auto list = root.find("added_tokens")) {
    for (const JsonNode& node : list->as_list())
      tokens.push_back(read_token(node, pieces));
  }
  sort_by_id(tokens);
  const std::int32_t size = check_dense(root, pieces, tokens);
  // Text is searched after it was normalised, so what is searched for must be as well.
  std::vector<std::string> decoded;
  Matcher matcher;
  std::string buffer;
  for (const AddedToken& token : tokens) {
    decoded.emplace_back(token.normalized
                             ? normalizer.apply(token.content, Prefix::allowed, buffer, matcher)
                             : std::string_view(token.content));
  }
  return AddedTokens(std::move(tokens), std::move(decoded), size, root);
}

AddedTokens AddedTokens::of(std::vector<AddedToken> tokens, const Vocabulary& pieces,
                            const JsonNode& place) {
  std::vector<std::string> decoded;
  sort_by_id(tokens);
  for (const AddedToken& token : tokens) {
    check_token(token, pieces, place);
    decoded.push_back(token.content);
  }
  const std::int32_t size = check_dense(place, pieces, tokens);
  return AddedTokens(std::move(tokens), std::move(decoded), size, place);
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto found = std::lower_bound(
      tokens_.begin(), tokens_.end(), id,
      [](const AddedToken& token, std::int32_t wanted) { return token.id < wanted; });
  return found != tokens_.end() && found->id == id ? &*found : nullptr;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  for (const AddedToken& token : tokens_)
    if (token.content == content) return &token;
  return nullptr;
}

std::string_view AddedTokens::decoded(const AddedToken& token) const {
  return decoded_[static_cast<std::size_t>(&token - tokens_.data())];
}

}  // namespace finetune::tokenizer
