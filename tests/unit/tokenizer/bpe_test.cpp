// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/bpe.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer::bpe_test {
namespace {

using core::Json;
using Ids = std::vector<std::int32_t>;

class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::size_t below(std::size_t limit) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ % limit;
  }

 private:
  std::uint64_t state_;
};

/// A vocabulary over `alphabet` with random merges, some of which lead to the same piece.
Json random_model(Numbers& numbers, const std::vector<std::string>& alphabet) {
  std::vector<std::string> pieces = alphabet;
  Json merges = Json::array();
  for (int i = 0; i < 60; ++i) {
    const std::string left = pieces[numbers.below(pieces.size())];
    const std::string right = pieces[numbers.below(pieces.size())];
    const Json merge{left, right};
    if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
    merges.push_back(merge);
    if (std::find(pieces.begin(), pieces.end(), left + right) == pieces.end())
      pieces.push_back(left + right);
  }
  Json vocab = Json::object();
  for (const std::string& piece : pieces)
    vocab[piece] = vocab.size();
  return {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}};
}

/// By the definition: merge the leftmost pair of the lowest rank until none is left.
Ids by_rescanning(const Json& model, std::vector<std::string> parts) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (const Json& merge : model["merges"])
    ranks.emplace(std::pair(merge[0].get<std::string>(), merge[1].get<std::string>()),
                  ranks.size());
  for (;;) {
    std::size_t best_rank = ranks.size();
    std::size_t best = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find({parts[i], parts[i + 1]});
      if (found == ranks.end() || found->second >= best_rank) continue;
      best_rank = found->second;
      best = i;
    }
    if (best_rank == ranks.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts)
    ids.push_back(model["vocab"][part].get<std::int32_t>());
  return ids;
}

Ids encode(const Bpe& bpe, const std::string& word) {
  Ids ids;
  Bpe::Scratch scratch;
  bpe.encode(word, ids, scratch);
  return ids;
}

TEST(Bpe, GivesWordsMetBeforeTheSameIds) {
  const std::vector<std::string> alphabet{"a", "b", "▁", "?"};  // the last has no piece
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Numbers numbers(seed);
    Json model = random_model(numbers, {"a", "b", "▁", "<unk>"});
    model["unk_token"] = "<unk>";
    model["fuse_unk"] = seed % 2 == 0;
    model["ignore_merges"] = seed % 3 == 0;
    const Bpe bpe = Bpe::read(JsonNode(model, "model"), false);
    Bpe::Scratch kept;
    for (int i = 0; i < 200; ++i) {
      std::string text;
      for (std::size_t n = numbers.below(40); n > 0; --n)
        text += alphabet[numbers.below(alphabet.size())];
      Ids ids;
      bpe.encode(text, ids, kept);
      EXPECT_EQ(ids, encode(bpe, text)) << seed << " " << text;
    }
  }
}

TEST(WordCache, TellsWordsApartByEveryByteAndTheirLength) {
  WordCache cache;
  const std::string bytes = "abcdefghijklmnopqrstuvwxyz";
  for (std::size_t size = 1; size <= WordCache::longest_word; ++size) {
    const std::string word = bytes.substr(0, size);
    const Ids ids(1 + size % WordCache::most_ids, static_cast<std::int32_t>(size));
    cache.insert(word, ids);
    const auto found = cache.find(word);
    EXPECT_EQ(Ids(found.begin(), found.end()), ids);
    for (std::size_t i = 0; i < size; ++i) {
      std::string other = word;
      other[i] ^= 1;
      EXPECT_TRUE(cache.find(other).empty()) << other;
    }
    EXPECT_TRUE(cache.find(word + '\0').empty());
  }
  EXPECT_TRUE(cache.find(std::string(1, '\0')).empty());
  EXPECT_TRUE(cache.find("").empty());
  cache.insert(bytes, Ids{1});
  EXPECT_TRUE(cache.find(bytes).empty()) << "too long";
  cache.insert("xyz", Ids(WordCache::most_ids + 1, 1));
  EXPECT_TRUE(cache.find("xyz").empty()) << "too many ids";
}

TEST(Bpe, MergesAsTheDefinitionSays) {
  const std::vector<std::string> alphabet{"a", "b", "c", "é", "▁", "界"};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Numbers numbers(seed);
    const Json model = random_model(numbers, alphabet);
    const Bpe bpe = Bpe::read(JsonNode(model, "model"), false);
    for (int i = 0; i < 40; ++i) {
      std::string word;
      std::vector<std::string> parts;
      for (std::size_t n = numbers.below(60); n > 0; --n) {
        parts.push_back(alphabet[numbers.below(alphabet.size())]);
        word += parts.back();
      }
      EXPECT_EQ(encode(bpe, word), by_rescanning(model, parts)) << seed << " " << word;
      EXPECT_EQ(encode(bpe, word), by_rescanning(model, parts)) << "when met again: " << word;
    }
  }
}

TEST(Bpe, MergesBytesAsTheDefinitionSays) {
  std::vector<std::string> alphabet;
  for (const char byte : {'a', ' ', '\n', '\xC3', '\xA9'})
    append_utf8(alphabet.emplace_back(), byte_alphabet()[static_cast<unsigned char>(byte)]);
  const std::string bytes = "a \n\xC3\xA9";
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Numbers numbers(seed);
    const Json model = random_model(numbers, alphabet);
    const Bpe bpe = Bpe::read(JsonNode(model, "model"), true);
    for (int i = 0; i < 40; ++i) {
      std::string word;
      std::vector<std::string> parts;
      for (std::size_t n = numbers.below(60); n > 0; --n) {
        const std::size_t which = numbers.below(alphabet.size());
        parts.push_back(alphabet[which]);
        word += bytes[which];
      }
      EXPECT_EQ(encode(bpe, word), by_rescanning(model, parts)) << seed;
    }
  }
}

TEST(Bpe, EncodesOneWordOfAMillionCharacters) {
  const Json model = Json::parse(R"({"vocab": {"a": 0, "aa": 1, "aaaa": 2},
                                     "merges": ["a a", "aa aa"]})");
  const Bpe bpe = Bpe::read(JsonNode(model, "model"), false);
  const Ids ids = encode(bpe, std::string(1'000'003, 'a'));
  ASSERT_EQ(ids.size(), 250'002U);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 250'000);
  EXPECT_EQ(ids[250'000], 1);
  EXPECT_EQ(ids[250'001], 0);
}

TEST(Bpe, MergesUnknownTokensWhereTheFileSaysSo) {
  const Json model = Json::parse(R"({"unk_token": "?", "vocab": {"?": 0, "??": 1, "a": 2},
                                     "merges": ["? ?"]})");
  const Bpe bpe = Bpe::read(JsonNode(model, "model"), false);
  EXPECT_EQ(encode(bpe, "xyza"), (Ids{1, 0, 2}));
  EXPECT_EQ(encode(bpe, "axy"), (Ids{2, 1}));
}

TEST(Bpe, FusesUnknownCharactersAcrossWordsThatNeverMerge) {
  Json model = Json::parse(R"({"unk_token": "<unk>", "fuse_unk": true,
      "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3}, "merges": ["a b"]})");
  EXPECT_EQ(encode(Bpe::read(JsonNode(model, "model"), false), "xyabzw"), (Ids{0, 3, 0}));
  model["fuse_unk"] = false;
  EXPECT_EQ(encode(Bpe::read(JsonNode(model, "model"), false), "xyabzw"), (Ids{0, 0, 3, 0, 0}));
}

TEST(Bpe, SpellsUnknownCharactersInBytesOnlyWhenItHasAllOfThem) {
  const Json model = Json::parse(R"({"unk_token": "<unk>", "byte_fallback": true,
      "vocab": {"<unk>": 0, "<0xC3>": 1, "<0xA9>": 2, "<0xA>": 3, "a": 4}, "merges": []})");
  const Bpe bpe = Bpe::read(JsonNode(model, "model"), false);
  EXPECT_EQ(encode(bpe, "aé"), (Ids{4, 1, 2}));
  EXPECT_EQ(encode(bpe, "aè"), (Ids{4, 0}));
  EXPECT_EQ(encode(bpe, "\n"), (Ids{0})) << "<0xA> is no byte";
}

TEST(Bpe, TakesAWholeWordBeforeMergesWhenTheFileIgnoresThem) {
  Json model = Json::parse(R"({"vocab": {"a": 0, "b": 1, "c": 2, "bc": 3, "abc": 4, "abca": 5},
                               "merges": ["b c"], "ignore_merges": true})");
  EXPECT_EQ(encode(Bpe::read(JsonNode(model, "model"), false), "abca"), (Ids{5}));
  model["ignore_merges"] = false;
  EXPECT_EQ(encode(Bpe::read(JsonNode(model, "model"), false), "abca"), (Ids{0, 3, 0}));
}

}  // namespace
}  // namespace finetune::tokenizer::bpe_test
