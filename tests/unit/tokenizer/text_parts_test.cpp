// SPDX-License-Identifier: Apache-2.0
// Texts put together from parts that may name special tokens and parts that may not.

#include <vector>

#include "tokenizer/detail/unicode.hpp"
#include "tokenizer_files.hpp"

namespace finetune::tokenizer::test::text_parts_test {
namespace {

using Ids = std::vector<std::int32_t>;
using Parts = std::vector<TextPart>;

/// Letters, and special tokens "ab" 4, "bc" 5, and 6, "think", which is not special.
Json overlapping() {
  Json file = Json::parse(R"({"model": {"type": "BPE", "merges": [],
      "vocab": {"a": 0, "b": 1, "c": 2, "▁": 3}}, "added_tokens": []})");
  const auto add = [&](int id, const char* name, bool special, bool normalized) {
    file["added_tokens"].push_back(
        {{"id", id}, {"content", name}, {"special", special}, {"normalized", normalized}});
  };
  add(4, "ab", true, false);
  add(5, "bc", true, false);
  add(6, "think", false, false);
  return file;
}

Ids encode(const Tokenizer& tokenizer, const Parts& parts) {
  return tokenizer.encode(parts, Encode::no_ends);
}

TEST(TextParts, CountANameOnlyWhereAllOfItIsOutsideOfPlainParts) {
  const ModelFolder folder;
  const Tokenizer tokenizer = folder.load(overlapping());
  EXPECT_EQ(encode(tokenizer, {{"ab"}, {"ab", true}, {"ab"}}), (Ids{4, 0, 1, 4}));
  EXPECT_EQ(encode(tokenizer, {{"a"}, {"b"}}), (Ids{4}));
  EXPECT_EQ(encode(tokenizer, {{"a"}, {"b", true}}), (Ids{0, 1}));
  EXPECT_EQ(encode(tokenizer, {{"a", true}, {"b"}}), (Ids{0, 1}));
  EXPECT_EQ(encode(tokenizer, {{"a"}, {"", true}, {"b"}}), (Ids{4}));
}

TEST(TextParts, FindANameThatTheEndOfPlainTextSeemsToCover) {
  const ModelFolder folder;
  const Tokenizer tokenizer = folder.load(overlapping());
  EXPECT_EQ(encode(tokenizer, {{"a", true}, {"bc"}}), (Ids{0, 5}));
}

TEST(TextParts, FindTokensThatAreNotSpecialEverywhere) {
  const ModelFolder folder;
  const Tokenizer tokenizer = folder.load(overlapping());
  EXPECT_EQ(encode(tokenizer, {{"think", true}, {"thi"}, {"nk", true}}), (Ids{6, 6}));
}

TEST(TextParts, AreOneTextWhateverTheSeams) {
  for (const std::string name : {"llama3", "qwen2", "mistral"}) {
    const Tokenizer tokenizer = Tokenizer::load(golden(name));
    for (const Json& item : golden_json(name + "/cases.json")) {
      const auto text = item.at("text").get<std::string>();
      for (std::size_t i = 0; i < text.size();) {
        next_code_point(text, i);
        const Parts parts{{std::string_view(text).substr(0, i)},
                          {std::string_view(text).substr(i)}};
        ASSERT_EQ(tokenizer.encode(parts, Encode::document), item.at("ids").get<Ids>()) << text;
      }
    }
  }
}

TEST(TextParts, AllPlainAreEncodedAsPlainText) {
  const Tokenizer tokenizer = Tokenizer::load(golden("qwen2"));
  const std::string text = "a<|im_end|> b<|im_start|>";
  EXPECT_EQ(tokenizer.encode(Parts{{text, true}}, Encode::document),
            tokenizer.encode(text, Encode::document | Encode::plain));
  EXPECT_EQ(tokenizer.encode(Parts{{text}}, Encode::document | Encode::plain),
            tokenizer.encode(text, Encode::document | Encode::plain));
}

TEST(TextParts, FollowNamesThatAreLookedForInNormalisedText) {
  const ModelFolder folder;
  Json file = overlapping();
  for (Json& token : file["added_tokens"])
    token["normalized"] = true;
  file["normalizer"] = Json::parse(R"({"type": "Sequence", "normalizers": [{"type": "Lowercase"},
      {"type": "Replace", "pattern": {"String": "x"}, "content": "ccc"}]})");
  const Tokenizer tokenizer = folder.load(file);
  EXPECT_EQ(encode(tokenizer, {{"xAB"}, {"xAB", true}, {"xAB"}, {"x", true}}),
            (Ids{2, 2, 2, 4, 2, 2, 2, 0, 1, 2, 2, 2, 4, 2, 2, 2}));
  EXPECT_EQ(encode(tokenizer, {{"A"}, {"B", true}}), (Ids{0, 1}));
  EXPECT_TRUE(tokenizer.names_special("xAB"));
  EXPECT_FALSE(tokenizer.names_special("think"));
}

TEST(TextParts, WithoutEndsHaveThePrefixButNoTokensAround) {
  const ModelFolder folder;
  Json file = overlapping();
  file["normalizer"] = {{"type", "Prepend"}, {"prepend", "▁"}};
  file["post_processor"] = Json::parse(R"({"type": "TemplateProcessing", "single": [
      {"SpecialToken": {"id": "ab"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "bc"}}],
      "special_tokens": {"ab": {"ids": [4]}, "bc": {"ids": [5]}}})");
  const Tokenizer tokenizer = folder.load(file);
  EXPECT_EQ(tokenizer.encode("c", Encode::document), (Ids{4, 3, 2, 5}));
  EXPECT_EQ(tokenizer.encode("c", Encode::no_ends), (Ids{3, 2}));
  EXPECT_EQ(tokenizer.encode("c", Encode::continuation), (Ids{2}));
}

TEST(TextParts, MustBeUtf8Together) {
  const Tokenizer tokenizer = Tokenizer::load(golden("llama3"));
  const std::string text = "ж";
  const Parts halves{{std::string_view(text).substr(0, 1)}, {std::string_view(text).substr(1)}};
  EXPECT_EQ(encode(tokenizer, halves), tokenizer.encode(text, Encode::no_ends));
  EXPECT_THROW(encode(tokenizer, {halves[0]}), core::Error);
}

TEST(SpecialNames, AreFoundWhereverTheyStand) {
  const Tokenizer tokenizer = Tokenizer::load(golden("qwen2"));
  EXPECT_TRUE(tokenizer.names_special("a<|im_end|>b"));
  EXPECT_TRUE(tokenizer.names_special("<|im_<|im_end|>"));
  EXPECT_FALSE(tokenizer.names_special("<|im_end|"));
  EXPECT_FALSE(tokenizer.names_special(""));
}

}  // namespace
}  // namespace finetune::tokenizer::test::text_parts_test
