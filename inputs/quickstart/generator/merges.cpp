// SPDX-License-Identifier: Apache-2.0
#include "generator/merges.hpp"

#include <algorithm>
#include <optional>

#include "core/error.hpp"

namespace finetune::quickstart {
namespace {

bool letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool digit(char c) {
  return c >= '0' && c <= '9';
}
bool line_end(char c) {
  return c == '\n' || c == '\r';
}
bool space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool symbol(char c) {
  return !letter(c) && !digit(c) && !space(c);
}

template <typename Test>
std::size_t run(std::string_view text, std::size_t at, Test test) {
  const std::size_t start = at;
  while (at < text.size() && test(text[at]))
    ++at;
  return at - start;
}

/// 's, 't, 're, 've, 'm, 'll, 'd in either case; 0 where there is none.
std::size_t contraction(std::string_view text) {
  static constexpr std::string_view endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (text.empty() || text[0] != '\'') return 0;
  for (const std::string_view ending : endings) {
    const std::string_view found = text.substr(1, ending.size());
    if (std::equal(found.begin(), found.end(), ending.begin(), ending.end(),
                   [](char a, char b) { return (a | 0x20) == b; })) {
      return 1 + ending.size();
    }
  }
  return 0;
}

/// Whitespace: up to the last line end in it, else all but the blank that belongs to the next word.
std::size_t blank_length(std::string_view text) {
  const std::size_t blanks = run(text, 0, space);
  for (std::size_t n = blanks; n > 0; --n) {
    if (line_end(text[n - 1])) return n;
  }
  return blanks == text.size() || blanks == 1 ? blanks : blanks - 1;
}

/// Length of the first word of `text`, trying the alternatives of the pattern in their order.
std::size_t word_length(std::string_view text) {
  if (const std::size_t n = contraction(text)) return n;
  const std::size_t lead = !letter(text[0]) && !digit(text[0]) && !line_end(text[0]) ? 1 : 0;
  if (const std::size_t letters = run(text, lead, letter)) return lead + letters;
  if (const std::size_t digits = run(text, 0, digit)) return std::min<std::size_t>(digits, 3);
  const std::size_t blank = text[0] == ' ' ? 1 : 0;
  if (const std::size_t symbols = run(text, blank, symbol)) {
    return blank + symbols + run(text, blank + symbols, line_end);
  }
  return blank_length(text);
}

using Pair = std::pair<int, int>;

struct CountedWord {
  std::vector<int> tokens;
  std::int64_t count;
};

std::optional<Pair> most_frequent_pair(const std::vector<CountedWord>& words) {
  std::map<Pair, std::int64_t> counts;
  for (const CountedWord& word : words) {
    for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i) {
      counts[{word.tokens[i], word.tokens[i + 1]}] += word.count;
    }
  }
  // max_element keeps the first of equals, which in a map is the smallest pair.
  const auto best =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (best == counts.end()) return std::nullopt;
  return best->first;
}

void merge(std::vector<int>& tokens, const Pair& pair, int merged) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool found =
        i + 1 < tokens.size() && tokens[i] == pair.first && tokens[i + 1] == pair.second;
    tokens[kept++] = found ? merged : tokens[i];
    if (found) ++i;
  }
  tokens.resize(kept);
}

}  // namespace

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    core::check(static_cast<unsigned char>(text[0]) < 0x80, "the corpus has a byte beyond ASCII");
    const std::size_t length = word_length(text);
    words.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return words;
}

void MergeLearner::read(std::string_view text) {
  for (const std::string_view word : split_words(text)) {
    const auto found = count_of_word_.find(word);
    if (found != count_of_word_.end()) {
      ++found->second;
    } else {
      count_of_word_.emplace(word, 1);
    }
  }
}

Merges MergeLearner::learn(std::size_t num_tokens) const {
  Merges result;
  std::array<int, 256> token_of_byte{};
  for (const unsigned char byte : byte_order()) {
    token_of_byte[byte] = static_cast<int>(result.tokens.size());
    result.tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::vector<CountedWord> words;
  for (const auto& [text, count] : count_of_word_) {
    CountedWord word{{}, count};
    for (const char c : text)
      word.tokens.push_back(token_of_byte[static_cast<unsigned char>(c)]);
    words.push_back(std::move(word));
  }
  while (result.tokens.size() < num_tokens) {
    const std::optional<Pair> pair = most_frequent_pair(words);
    core::check(pair.has_value(), "the corpus has too few words for this many tokens");
    const int merged = static_cast<int>(result.tokens.size());
    result.pairs.push_back(*pair);
    result.tokens.push_back(result.tokens[pair->first] + result.tokens[pair->second]);
    for (CountedWord& word : words)
      merge(word.tokens, *pair, merged);
  }
  return result;
}

const std::array<unsigned char, 256>& byte_order() {
  static const std::array<unsigned char, 256> order = [] {
    const auto printable = [](int b) {
      return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    };
    std::array<unsigned char, 256> bytes{};
    for (int b = 0; b < 256; ++b)
      bytes[b] = static_cast<unsigned char>(b);
    std::stable_partition(bytes.begin(), bytes.end(), printable);
    return bytes;
  }();
  return order;
}

std::string byte_character(unsigned char byte) {
  // Bytes that cannot be printed take the code points from U+0100 on, in their order (as GPT-2).
  static const std::array<int, 256> code_points = [] {
    std::array<int, 256> points{};
    for (int i = 0; i < 256; ++i) {
      const unsigned char b = byte_order()[i];
      points[b] = i < 188 ? b : 256 + i - 188;
    }
    return points;
  }();
  const int point = code_points[byte];
  if (point < 0x80) return std::string(1, static_cast<char>(point));
  return {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
}

}  // namespace finetune::quickstart
