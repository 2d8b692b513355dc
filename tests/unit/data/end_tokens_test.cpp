// SPDX-License-Identifier: Apache-2.0
#include "data/text/end_tokens.hpp"

#include <gtest/gtest.h>

#include "support/errors.hpp"
#include "support/folders.hpp"
#include "support/messages.hpp"

namespace finetune::data::end_tokens_test {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

class EndTokens : public testing::Test {
 protected:
  EndTokens() {
    fs::copy(tests::source_folder() / "tests/golden/tokenizers/qwen2/tokenizer.json",
             folder_.path() / "tokenizer.json");
    folder_.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  }
  std::int32_t end_of_turn() const { return *load().id("<|im_end|>"); }
  tokenizer::Tokenizer load() const { return tokenizer::Tokenizer::load(folder_.path()); }
  Ids ends() const { return end_tokens(folder_.path(), load()); }

  const tests::TemporaryFolder folder_;
};

TEST_F(EndTokens, AreTheTokenizersAloneWithoutOtherFiles) {
  EXPECT_EQ(ends(), Ids{end_of_turn()});
}

TEST_F(EndTokens, AreThoseOfTheGenerationConfigAndThenTheTokenizers) {
  folder_.write("generation_config.json", R"({"eos_token_id": [7, 3, 7]})");
  folder_.write("config.json", R"({"eos_token_id": 5})");
  EXPECT_EQ(ends(), (Ids{7, 3, end_of_turn()}));
  folder_.write("generation_config.json", R"({"eos_token_id": 4})");
  EXPECT_EQ(ends(), (Ids{4, end_of_turn()}));
  folder_.write("generation_config.json",
                "{\"eos_token_id\": " + std::to_string(end_of_turn()) + "}");
  EXPECT_EQ(ends(), Ids{end_of_turn()});
}

TEST_F(EndTokens, AreThoseOfTheModelsConfigWhereTheOtherSaysNothing) {
  folder_.write("config.json", R"({"eos_token_id": [5, 6]})");
  EXPECT_EQ(ends(), (Ids{5, 6, end_of_turn()}));
  folder_.write("generation_config.json", R"({"eos_token_id": null, "temperature": 1})");
  EXPECT_EQ(ends(), (Ids{5, 6, end_of_turn()}));
}

TEST_F(EndTokens, MayBeNone) {
  folder_.write("tokenizer_config.json", "{}");
  EXPECT_EQ(ends(), Ids{});
}

TEST_F(EndTokens, OutsideOfTheVocabularyAreRefused) {
  const std::string file = (folder_.path() / "generation_config.json").string();
  folder_.write("generation_config.json", R"({"eos_token_id": [3, 999999]})");
  tests::expect_facts(tests::error_of(core::ErrorKind::input, [&] { ends(); }), file,
                      {"999999", "eos_token_id"});
  folder_.write("generation_config.json", R"({"eos_token_id": "</s>"})");
  tests::expect_facts(tests::error_of(core::ErrorKind::input, [&] { ends(); }), file,
                      {"eos_token_id"});
  folder_.write("generation_config.json", R"({"eos_token_id": [3.5]})");
  tests::expect_facts(tests::error_of(core::ErrorKind::input, [&] { ends(); }), file, {"3.5"});
}

}  // namespace
}  // namespace finetune::data::end_tokens_test
