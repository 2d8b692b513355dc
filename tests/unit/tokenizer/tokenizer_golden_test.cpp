// SPDX-License-Identifier: Apache-2.0
// Token for token against the Hugging Face library: three small tokenizers in the common manners,
// and rules.json, where parts of them were exchanged (tests/golden/tokenizers/make_rules.py). And
// against the libraries of other kinds of files (make_models.py there).

#include "tokenizer_files.hpp"

#include <vector>

namespace finetune::tokenizer::test::tokenizer_golden_test {
namespace {

using Ids = std::vector<std::int32_t>;

class ReferenceTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(ReferenceTokenizer, EncodesAndDecodesAsTheLibraryOfItsFileDoes) {
  const std::string name = GetParam();
  const Tokenizer tokenizer = Tokenizer::load(golden(name));
  const Json cases = golden_json(name + "/cases.json");
  ASSERT_GE(cases.size(), 10U);
  for (const Json& item : cases) {
    const auto text = item.at("text").get<std::string>();
    const auto ids = item.at("ids").get<Ids>();
    EXPECT_EQ(tokenizer.encode(text, Encode::document), ids) << text;
    if (!item.at("decoded").is_null()) {
      EXPECT_EQ(tokenizer.decode(ids), item.at("decoded").get<std::string>());
    }
    if (item.contains("decoded_with_special")) {
      EXPECT_EQ(tokenizer.decode(ids, false), item.at("decoded_with_special").get<std::string>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, ReferenceTokenizer,
                         ::testing::Values("llama3", "qwen2", "mistral", "unigram", "spm-bpe",
                                           "spm-unigram", "tiktoken", "tekken"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Tokenizer, AddsNothingToAContinuation) {
  for (const std::string name : {"llama3", "qwen2"}) {
    const Tokenizer tokenizer = Tokenizer::load(golden(name));
    for (const Json& item : golden_json(name + "/cases.json")) {
      EXPECT_EQ(tokenizer.encode(item.at("text").get<std::string>(), Encode::continuation),
                item.at("ids_without_special").get<Ids>());
    }
  }
}

TEST(Tokenizer, FollowsEveryRuleOfTheFileAsTheHuggingFaceLibraryDoes) {
  const ModelFolder folder;
  const Json rules = golden_json("rules.json");
  std::size_t num_texts = 0;
  for (const Json& item : rules.at("cases")) {
    Json file = golden_json(item.at("base").get<std::string>() + "/tokenizer.json");
    file["normalizer"] = item.at("normalizer");
    file["pre_tokenizer"] = item.at("pre_tokenizer");
    if (item.contains("decoder")) file["decoder"] = item.at("decoder");
    for (const Json& token : item.at("added_tokens"))
      file["added_tokens"].push_back(token);
    file["model"].update(item.at("model"));
    const Tokenizer tokenizer = folder.load(file);
    const bool plain = item.at("plain").get<bool>();
    for (const Json& text : item.at("texts")) {
      const auto ids = text.at(1).get<Ids>();
      Json shown = item;
      shown.erase("texts");
      EXPECT_EQ(
          tokenizer.encode(text.at(0).get<std::string>(), plain ? Encode::plain : Encode::document),
          ids)
          << text.at(0) << "\n"
          << shown;
      EXPECT_EQ(tokenizer.decode(ids, false), text.at(2).get<std::string>()) << shown;
      ++num_texts;
    }
  }
  EXPECT_GE(num_texts, 300U);
}

}  // namespace
}  // namespace finetune::tokenizer::test::tokenizer_golden_test
