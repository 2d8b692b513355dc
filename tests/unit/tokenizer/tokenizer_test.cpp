// SPDX-License-Identifier: Apache-2.0
// What tokenizers of this program do beyond the Hugging Face library: continuations, end tokens,
// round trips, threads, refusals of text.

#include "tokenizer_files.hpp"

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer::test::tokenizer_test {
namespace {

using Ids = std::vector<std::int32_t>;

/// Characters "a" "b" "c" "▁" with ids 0 to 3, no merges.
Json letters() {
  return Json::parse(R"({"model": {"type": "BPE", "merges": [],
      "vocab": {"a": 0, "b": 1, "c": 2, "▁": 3}}})");
}

std::string random_text(std::uint64_t seed) {
  std::string text;
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  const auto next = [&](std::uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
  };
  const std::array<std::array<char32_t, 2>, 6> ranges{{{0x0, 0x7F},
                                                       {0x20, 0x7E},
                                                       {0x80, 0x7FF},
                                                       {0x800, 0xD7FF},
                                                       {0xE000, 0xFFFF},
                                                       {0x10000, 0x10FFFF}}};
  for (std::uint64_t length = next(200); length > 0; --length) {
    const auto& range = ranges[next(ranges.size())];
    append_utf8(text, static_cast<char32_t>(range[0] + next(range[1] - range[0] + 1)));
  }
  return text;
}

TEST(Tokenizer, GivesBackTheBytesOfByteLevelText) {
  const Tokenizer tokenizer = Tokenizer::load(golden("llama3"));
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = random_text(seed);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, Encode::document)), text) << seed;
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, Encode::continuation)), text) << seed;
  }
}

TEST(Tokenizer, GivesBackTextWithBytesThatHaveNoPieceOfTheirOwn) {
  const Tokenizer tokenizer = Tokenizer::load(golden("mistral"));
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::string text = random_text(seed);
    if (text.find("▁") != std::string::npos) continue;  // the mark comes back as a space
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, Encode::document)), text) << seed;
  }
}

TEST(Tokenizer, LeavesOutThePrefixOfAContinuationInEveryManner) {
  const ModelFolder folder;
  Json prepend = letters();
  prepend["normalizer"] = {{"type", "Prepend"}, {"prepend", "▁"}};
  Json always = letters();
  always["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}, {"split", true}};
  Json first = always;
  first["pre_tokenizer"]["prepend_scheme"] = "first";
  for (const Json& file : {prepend, always, first}) {
    const Tokenizer tokenizer = folder.load(file);
    EXPECT_EQ(tokenizer.encode("ab", Encode::document), (Ids{3, 0, 1}));
    EXPECT_EQ(tokenizer.encode("ab", Encode::continuation), (Ids{0, 1}));
  }
  EXPECT_EQ(folder.load(always).encode(" a", Encode::continuation), (Ids{3, 0}));
}

TEST(Tokenizer, TakesTheNameOfASpecialTokenAsTextOnlyWhenTold) {
  const Tokenizer tokenizer = Tokenizer::load(golden("qwen2"));
  const std::int32_t end = tokenizer.id("<|im_end|>").value();
  const Ids ids = tokenizer.encode("a<|im_end|>", Encode::document);
  EXPECT_EQ(ids.back(), end);
  const Ids plain = tokenizer.encode("a<|im_end|>", Encode::document | Encode::plain);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), end), 0);
  EXPECT_EQ(tokenizer.decode(plain), "a<|im_end|>");
}

TEST(Tokenizer, EndTokenComesFromTheFirstFileThatNamesOne) {
  const ModelFolder folder;
  const Json file = letters();
  folder.write_json("generation_config.json", Json{{"eos_token_id", {2, 1}}, {"bos_token_id", 3}});
  EXPECT_EQ(folder.load(file).eos_id(), 2);
  EXPECT_EQ(folder.load(file).bos_id(), 3);
  folder.write_json("config.json", Json{{"eos_token_id", 1}});
  EXPECT_EQ(folder.load(file).eos_id(), 1);
  folder.write_json("tokenizer_config.json",
                    Json{{"eos_token", {{"content", "a"}}}, {"bos_token", nullptr}});
  EXPECT_EQ(folder.load(file).eos_id(), 0);
  EXPECT_EQ(folder.load(file).bos_id(), std::nullopt);
  folder.write_json("tokenizer_config.json", Json{{"eos_token", "b"}, {"bos_token", "c"}});
  EXPECT_EQ(folder.load(file).eos_id(), 1);
  EXPECT_EQ(folder.load(file).bos_id(), 2);
}

TEST(Tokenizer, EndTokenIsMissedOnlyWhenItIsUsed) {
  const ModelFolder folder;
  const Tokenizer tokenizer = folder.load(letters());
  const std::string message = message_of([&] { tokenizer.eos_id(); });
  EXPECT_NE(message.find("Add \"eos_token\""), std::string::npos) << message;
}

TEST(Tokenizer, EndTokenMustHaveAnId) {
  const ModelFolder folder;
  folder.write_json("config.json", Json{{"eos_token_id", 4}});
  EXPECT_NE(message_of([&] { folder.load(letters()); }).find("config.json.eos_token_id: id 4"),
            std::string::npos);
  folder.write_json("tokenizer_config.json", Json{{"eos_token", "</s>"}});
  EXPECT_NE(message_of([&] { folder.load(letters()); }).find("no token \"</s>\""),
            std::string::npos);
}

TEST(Tokenizer, FingerprintKnowsTheFileAndTheEndToken) {
  const ModelFolder folder;
  Json file = letters();
  const std::string before = folder.load(file).fingerprint();
  EXPECT_EQ(folder.load(file).fingerprint(), before);
  folder.write_json("config.json", Json{{"eos_token_id", 1}});
  const std::string with_end = folder.load(file).fingerprint();
  EXPECT_NE(with_end, before);
  file["model"]["vocab"]["d"] = 4;
  EXPECT_NE(folder.load(file).fingerprint(), with_end);
}

TEST(Tokenizer, RefusesToDropTextWithoutAWord) {
  const ModelFolder folder;
  const Tokenizer tokenizer = folder.load(letters());
  EXPECT_EQ(tokenizer.encode("abc", Encode::document), (Ids{0, 1, 2}));
  const std::string message = message_of([&] { tokenizer.encode("abx", Encode::document); });
  EXPECT_NE(message.find("no piece for \"x\""), std::string::npos) << message;
}

TEST(Tokenizer, NamesTheByteThatIsNotUtf8) {
  const Tokenizer tokenizer = Tokenizer::load(golden("llama3"));
  const std::string message = message_of([&] { tokenizer.encode("ab\xFFz", Encode::document); });
  EXPECT_NE(message.find("byte 2 is not valid UTF-8"), std::string::npos) << message;
}

TEST(Tokenizer, DecodesPartsOfCharactersAsReplacements) {
  const Tokenizer tokenizer = Tokenizer::load(golden("llama3"));
  const Ids ids = tokenizer.encode("ж", Encode::continuation);
  ASSERT_EQ(ids.size(), 2U);
  EXPECT_EQ(tokenizer.decode(std::span(ids).first(1)), "\uFFFD");
  EXPECT_EQ(tokenizer.decode(std::span(ids).last(1)), "\uFFFD");
}

TEST(Tokenizer, RefusesIdsBeyondItsVocabulary) {
  const Tokenizer tokenizer = Tokenizer::load(golden("llama3"));
  for (const std::int32_t id : {-1, static_cast<std::int32_t>(tokenizer.vocab_size())}) {
    const Ids ids{id};
    EXPECT_NE(message_of([&] { tokenizer.decode(ids); }).find("no token has id"),
              std::string::npos);
  }
}

TEST(Tokenizer, GivesTheSameIdsToAllThreads) {
  const Tokenizer tokenizer = Tokenizer::load(golden("qwen2"));
  std::vector<Ids> expected;
  const Tokenizer other = Tokenizer::load(golden("qwen2"));  // has met no piece yet
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    expected.push_back(tokenizer.encode(random_text(seed), Encode::document));
  std::vector<int> num_right(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < num_right.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t seed = 0; seed < expected.size(); ++seed)
        num_right[t] += other.encode(random_text(seed), Encode::document) == expected[seed];
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(num_right, std::vector<int>(4, 50));
}

}  // namespace
}  // namespace finetune::tokenizer::test::tokenizer_test
