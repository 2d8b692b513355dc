// SPDX-License-Identifier: Apache-2.0
// What published models need: Llama 4's tokenizer.model, the spaces of Mistral's first template,
// and ids without any tokenizer.

#include <fmt/format.h>

#include <sstream>
#include <utility>
#include <vector>

#include "tokenizer_files.hpp"

namespace finetune::tokenizer::test::tokenizer_models_test {
namespace {

using Ids = std::vector<std::int32_t>;

/// Six bytes as base64: two that no UTF-8 has, then a number.
std::string unreachable_piece(std::uint32_t number) {
  constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::uint64_t bytes = 0xFFFFULL << 32 | number;
  std::string text;
  for (int shift = 42; shift >= 0; shift -= 6)
    text += digits[bytes >> shift & 63];
  return text;
}

/// The small golden file, filled up to the number of pieces by which Llama 4's is known.
std::string llama4_file(std::uint32_t num_pieces) {
  std::ifstream file(golden("tiktoken") / "tokenizer.model", std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  for (std::uint32_t rank = 400; rank < num_pieces; ++rank)
    text << unreachable_piece(rank) << ' ' << rank << '\n';
  return text.str();
}

TEST(Llama4Tokenizer, GivesTheIdsOfTiktokenUnderItsPattern) {
  const ModelFolder folder;
  folder.write("tokenizer.model", llama4_file(200'000));
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  const Json cases = golden_json("tiktoken/llama4_cases.json");
  ASSERT_GE(cases.size(), 10U);
  for (const Json& item : cases) {
    const auto text = item.at("text").get<std::string>();
    EXPECT_EQ(tokenizer.encode(text, Encode::document), item.at("ids").get<Ids>()) << text;
  }
}

// Ids of github.com/meta-llama/llama-models, models/llama4/tokenizer.py.
TEST(Llama4Tokenizer, HasItsSpecialTokensBehindThePieces) {
  const ModelFolder folder;
  folder.write("tokenizer.model", llama4_file(200'000));
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.bos_id(), 200'000);
  EXPECT_EQ(tokenizer.eos_id(), 200'001);
  EXPECT_EQ(tokenizer.id("<|header_start|>"), 200'005);
  EXPECT_EQ(tokenizer.id("<|eot|>"), 200'008);
  EXPECT_EQ(tokenizer.id("<|python_start|>"), 200'016);
  EXPECT_EQ(tokenizer.id("<|text_post_train_reserved_special_token_68|>"), 200'079);
  EXPECT_EQ(tokenizer.id("<|image_start|>"), 200'080);
  EXPECT_EQ(tokenizer.id("<|patch|>"), 200'092);
  EXPECT_EQ(tokenizer.id("<|vision_reserved_special_token_1047|>"), 201'133);
  EXPECT_EQ(tokenizer.id("<|reasoning_thinking_end|>"), 201'143);
  EXPECT_EQ(tokenizer.id("<|reserved_special_token_0|>"), 201'144);
  EXPECT_EQ(tokenizer.vocab_size(), 202'048);
}

TEST(Llama4Tokenizer, OfMorePiecesIsNobodys) {
  const ModelFolder folder;
  folder.write("tokenizer.model", llama4_file(200'001));
  EXPECT_NE(message_of([&] { Tokenizer::load(folder.path()); }).find("200,001 pieces"),
            std::string::npos);
}

Json mistral_v1() {
  std::ifstream file(golden("tiktoken").parent_path().parent_path() / "templates/mistral_v1.json");
  return Json::parse(file).at("cases");
}

/// A conversation as modules/templates/mistral-v1.jinja writes it, cut where an answer begins and
/// where it ends.
std::vector<std::string> mistral_v1_runs(const Json& messages) {
  std::vector<std::string> runs = {"<s>"};
  std::string system;
  for (const Json& message : messages) {
    const auto text = message.at("content").get<std::string>();
    if (message.at("role") == "system") {
      system = text + "\n\n";
    } else if (message.at("role") == "user") {
      const std::string said = " [INST] " + std::exchange(system, "") + text + " [/INST]";
      if (runs.size() > 1) runs.emplace_back();
      runs.back() += said;
    } else {
      runs.push_back(" " + text + "</s>");
    }
  }
  return runs;
}

// Ids of mistral-common, which encodes each message on its own: see make_mistral_v1.py.
TEST(SentencePieceTemplate, WritesItsPrefixesItself) {
  const Tokenizer tokenizer = Tokenizer::load(golden("spm-bpe"));
  const Json cases = mistral_v1();
  ASSERT_EQ(cases.size(), 4U);
  for (const Json& each : cases) {
    const auto expected = each.at("ids").get<Ids>();
    Ids ids;
    std::string whole;
    for (const std::string& run : mistral_v1_runs(each.at("messages"))) {
      const Encode start = ids.empty() ? Encode::document : Encode::continuation;
      const Ids more = tokenizer.encode(run, start | Encode::no_ends);
      ids.insert(ids.end(), more.begin(), more.end());
      whole += run;
    }
    EXPECT_EQ(ids, expected) << each;
    EXPECT_EQ(tokenizer.encode(whole, Encode::no_ends), expected) << "as one text";
  }
}

TEST(SentencePieceTemplate, GetsThePrefixThatItDoesNotWrite) {
  const Tokenizer tokenizer = Tokenizer::load(golden("spm-bpe"));
  const Ids with_prefix = tokenizer.encode("<s>[INST]", Encode::no_ends);
  EXPECT_EQ(tokenizer.encode("<s> [INST]", Encode::no_ends), with_prefix);
  EXPECT_EQ(tokenizer.encode(" [INST]", Encode::no_ends),
            tokenizer.encode("[INST]", Encode::no_ends));
  EXPECT_NE(tokenizer.encode(" [INST]", Encode::document),
            tokenizer.encode("[INST]", Encode::document))
      << "a document keeps its spaces";
}

TEST(TokenizerOfIds, KnowsTheVocabularyAndItsEndsAlone) {
  const ModelFolder folder;
  folder.write("config.json", R"({"eos_token_id": [7, 8]})");
  const Tokenizer tokenizer = Tokenizer::of_ids(folder.path(), 10);
  EXPECT_TRUE(tokenizer.has_ids_only());
  EXPECT_EQ(tokenizer.vocab_size(), 10);
  EXPECT_EQ(tokenizer.eos_id(), 7);
  EXPECT_EQ(tokenizer.bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer.decode(Ids{3, 1, 2}), "3 1 2");
  EXPECT_NE(message_of([&] { tokenizer.encode("a", Encode::document); }).find("has no tokenizer"),
            std::string::npos);
  EXPECT_NE(tokenizer.fingerprint(), Tokenizer::of_ids(folder.path(), 11).fingerprint());
}

TEST(TokenizerOfIds, ReadsAConfigurationThatOnlyPythonWrites) {
  const ModelFolder folder;
  folder.write("config.json", R"({"time_step_limit": [0.0, Infinity], "eos_token_id": 7})");
  EXPECT_EQ(Tokenizer::of_ids(folder.path(), 10).eos_id(), 7);
}

TEST(TokenizerOfIds, MayHaveNoEndToken) {
  const ModelFolder folder;
  EXPECT_EQ(Tokenizer::of_ids(folder.path(), 10).find_eos_id(), std::nullopt);
}

}  // namespace
}  // namespace finetune::tokenizer::test::tokenizer_models_test
