// SPDX-License-Identifier: Apache-2.0
// Files other than tokenizer.json: which one is read, what goes around a text, what is refused.

#include <vector>

#include "core/file.hpp"
#include "tokenizer/detail/base64.hpp"
#include "tokenizer_files.hpp"

namespace finetune::tokenizer::test::tokenizer_kinds_test {
namespace {

using Ids = std::vector<std::int32_t>;

/// Letters a to d, and "ab"; tiktoken's special tokens come behind.
constexpr const char* ranks = "YQ== 0\nYg== 1\nYw== 2\nZA== 3\nYWI= 4\n";

Json tekken() {
  Json file = Json::parse(R"({"config": {"pattern": "\\p{L}+|\\P{L}", "default_vocab_size": 25,
      "default_num_special_tokens": 21}, "vocab": []})");
  int rank = 0;
  for (const char* piece : {"YQ==", "Yg==", "Yw==", "YWI=", "YmM="})
    file["vocab"].push_back({{"rank", rank++}, {"token_bytes", piece}});
  return file;
}

/// A protobuf field of bytes, and one of a number.
std::string field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) +
         bytes;
}
std::string field(int number, int value) {
  return std::string(1, static_cast<char>(number << 3)) + static_cast<char>(value);
}
std::string piece(const std::string& text, int type, const std::string& score = "") {
  return field(1, field(1, text) + (score.empty() ? "" : "\x15" + score) + field(3, type));
}
const std::string best("\x00\x00\x80\xBF", 4);    // -1
const std::string second("\x00\x00\x00\xC0", 4);  // -2
const std::string last("\x00\x00\x40\xC0", 4);    // -3

/// BPE: <unk> 0, <s> 1, </s> 2, then a b c ▁ ab bc abc.
std::string sentencepiece() {
  return piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3) + piece("a", 1, last) +
         piece("b", 1, last) + piece("c", 1, last) + piece("\u2581", 1, last) +
         piece("ab", 1, second) + piece("bc", 1, best) + piece("abc", 1, last) +
         field(2, field(3, 2)) + field(3, field(4, 0));
}

Tokenizer load(const ModelFolder& folder, const std::string& name, const std::string& content) {
  folder.write(name, content);
  return Tokenizer::load(folder.path());
}

std::string refusal(const std::string& name, const std::string& content) {
  const ModelFolder folder;
  return message_of([&] { load(folder, name, content); });
}

void expect_refusal(const std::string& name, const std::string& content,
                    const std::string& problem) {
  const std::string message = refusal(name, content);
  EXPECT_NE(message.find(problem), std::string::npos) << message;
  EXPECT_NE(message.find(name), std::string::npos) << message;
}

TEST(TokenizerFile, IsTheFirstOfTheKindsThatAreThere) {
  const ModelFolder folder;
  EXPECT_EQ(load(folder, "tokenizer.model.v3", sentencepiece()).vocab_size(), 10);
  EXPECT_EQ(load(folder, "tokenizer.model", ranks).vocab_size(), 5 + 256);
  EXPECT_EQ(load(folder, "qwen.tiktoken", ranks).vocab_size(), 5 + 208);
  EXPECT_EQ(load(folder, "tekken.json", tekken().dump()).vocab_size(), 25);
  EXPECT_EQ(
      folder.load(Json::parse(R"({"model": {"vocab": {"a": 0}, "merges": []}})")).vocab_size(), 1);
}

TEST(TokenizerFile, IsMissedWithAllThatWasLookedFor) {
  const ModelFolder folder;
  const std::string message = message_of([&] { Tokenizer::load(folder.path()); });
  for (const char* name : {"tokenizer.json", "tekken.json", "*.tiktoken", "tokenizer.model"})
    EXPECT_NE(message.find(name), std::string::npos) << message;
  folder.write("a.tiktoken", ranks);
  folder.write("b.tiktoken", ranks);
  EXPECT_NE(message_of([&] { Tokenizer::load(folder.path()); }).find("2 files *.tiktoken"),
            std::string::npos);
}

TEST(TokenizerFile, OfLlama3HasItsSpecialTokensBehindThePieces) {
  const ModelFolder folder;
  const Tokenizer tokenizer = load(folder, "tokenizer.model", ranks);
  EXPECT_EQ(tokenizer.encode("abd<|eot_id|>", Encode::document), (Ids{5, 4, 3, 5 + 9}));
  EXPECT_EQ(tokenizer.id("<|start_header_id|>"), 5 + 6);
  EXPECT_EQ(tokenizer.id("<|reserved_special_token_0|>"), 5 + 2);
  EXPECT_EQ(tokenizer.id("<|reserved_special_token_247|>"), 5 + 255);
  EXPECT_EQ(tokenizer.bos_id(), 5);
  EXPECT_EQ(tokenizer.eos_id(), 6);
  EXPECT_TRUE(tokenizer.names_special("a<|eot_id|>"));
}

TEST(TokenizerFile, OfQwenComposesCharactersAndBeginsWithNothing) {
  const ModelFolder folder;
  // The last two pieces are the bytes of é.
  const Tokenizer tokenizer =
      load(folder, "qwen.tiktoken", std::string(ranks) + "ww== 5\nqQ== 6\n");
  EXPECT_EQ(tokenizer.encode("e\u0301", Encode::document), (Ids{5, 6}));
  EXPECT_EQ(tokenizer.encode("a<|im_end|>", Encode::document), (Ids{0, 7 + 2}));
  EXPECT_EQ(tokenizer.id("<|extra_204|>"), 7 + 3 + 204);
  EXPECT_EQ(tokenizer.bos_id(), std::nullopt);
}

TEST(TokenizerFile, OfTekkenIsCutToTheSizeThatModelsUse) {
  const ModelFolder folder;
  const Tokenizer tokenizer = load(folder, "tekken.json", tekken().dump());
  EXPECT_EQ(tokenizer.encode("abc[INST]", Encode::document), (Ids{1, 21 + 3, 21 + 2, 3}));
  EXPECT_EQ(tokenizer.id("<SPECIAL_20>"), 20);
  Json named = tekken();
  named["special_tokens"] = Json::array();
  for (const char* name : {"<unk>", "</s>", "[THINK]"}) {
    named["special_tokens"].push_back(
        {{"rank", named["special_tokens"].size()}, {"token_str", name}, {"is_control", true}});
  }
  const Tokenizer other = load(folder, "tekken.json", named.dump());
  EXPECT_EQ(other.encode("[THINK]", Encode::document), (Ids{2}));
  EXPECT_EQ(other.eos_id(), 1);
  EXPECT_EQ(other.bos_id(), std::nullopt);
}

TEST(TokenizerFile, OfSentencePieceMergesTheBestScoreFirst) {
  const ModelFolder folder;
  const Tokenizer tokenizer = load(folder, "tokenizer.model", sentencepiece());
  EXPECT_EQ(tokenizer.encode("abc", Encode::document), (Ids{1, 6, 9}));
  EXPECT_EQ(tokenizer.encode("ab c", Encode::continuation), (Ids{7, 6, 5}));
  EXPECT_EQ(tokenizer.encode("axyb", Encode::continuation), (Ids{3, 0, 4})) << "fused";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab  c", Encode::document)), "ab  c");
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
}

TEST(TokenizerFile, TakesNamesAndSwitchesFromTheFilesBesideIt) {
  const ModelFolder folder;
  const std::string before = load(folder, "tokenizer.model", sentencepiece()).fingerprint();
  folder.write("tokenizer_config.json", R"({"add_bos_token": false, "add_eos_token": true,
      "added_tokens_decoder": {"10": {"content": "<|im_start|>", "special": true},
                               "2": {"content": "</s>", "special": true, "rstrip": true}}})");
  folder.write("added_tokens.json", R"({"<|im_start|>": 10, "<|im_end|>": 11})");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.vocab_size(), 12);
  EXPECT_EQ(tokenizer.encode("<|im_start|></s>  a<|im_end|>", Encode::document),
            (Ids{10, 2, 6, 3, 11, 2}));
  EXPECT_NE(tokenizer.fingerprint(), before);
  folder.write("added_tokens.json", R"({"<|im_end|>": 4})");
  EXPECT_NE(message_of([&] { Tokenizer::load(folder.path()); }).find("that is the id of \"b\""),
            std::string::npos);
}

TEST(TokenizerFile, PutsThePrefixBehindSpecialTokensInLegacyFilesOnly) {
  const ModelFolder folder;
  folder.write("tokenizer.model", sentencepiece());
  EXPECT_EQ(Tokenizer::load(folder.path()).encode("a</s>a", Encode::no_ends), (Ids{6, 3, 2, 6, 3}));
  folder.write("tokenizer_config.json", R"({"legacy": false})");
  EXPECT_EQ(Tokenizer::load(folder.path()).encode("a</s>a", Encode::no_ends), (Ids{6, 3, 2, 3}));
}

/// A text, and its ids with "legacy" true and false, as transformers 4.57.1 gives them by
/// LlamaTokenizer and sentencepiece 0.2.3.
struct SpacedText {
  const char* text;
  Ids legacy, other;
};

TEST(TokenizerFile, PutsThePrefixBeforeSpacesWhereTransformersDoes) {
  const ModelFolder folder;
  std::filesystem::copy(golden("spm-bpe") / "tokenizer.model", folder.path() / "tokenizer.model");
  const SpacedText texts[] = {
      {"a</s>a", {332, 347, 2, 332, 347}, {332, 347, 2, 347}},
      {"<s> [INST] The fox</s> jumps",
       {1, 332, 332, 98, 80, 388, 389, 365, 100, 279, 265, 285, 2, 332, 286, 338},
       {1, 332, 98, 80, 388, 389, 365, 100, 279, 265, 285, 2, 286, 338}},
      {" The fox", {332, 279, 265, 285}, {332, 279, 265, 285}},
      {"The fox", {279, 265, 285}, {279, 265, 285}},
      {"<s>The fox</s>  jumps </s> </s>x",
       {1, 279, 265, 285, 2, 4, 274, 338, 332, 2, 332, 332, 2, 332, 358},
       {1, 365, 265, 285, 2, 332, 286, 338, 332, 2, 332, 2, 358}},
      {"</s> ", {2, 332, 332}, {2, 332}}};
  folder.write("tokenizer_config.json", R"({"legacy": true})");
  const Tokenizer legacy = Tokenizer::load(folder.path());
  folder.write("tokenizer_config.json", R"({"legacy": false})");
  const Tokenizer other = Tokenizer::load(folder.path());
  for (const SpacedText& each : texts) {
    EXPECT_EQ(legacy.encode(each.text, Encode::no_ends), each.legacy) << each.text;
    EXPECT_EQ(other.encode(each.text, Encode::no_ends), each.other) << each.text;
  }
  // Where nobody says, it is Mistral's library that reads such a file.
  folder.write("tokenizer_config.json", "{}");
  EXPECT_EQ(Tokenizer::load(folder.path()).encode(" The fox", Encode::no_ends),
            (Ids{279, 265, 285}));
}

TEST(HostileTokenizerFile, OfTiktokenIsRefusedWithItsLine) {
  expect_refusal("tokenizer.model", "YQ== 0\n????\n", "tokenizer.model:2: not a piece");
  expect_refusal("tokenizer.model", "YQ== 0\nYg== -1\n", ":2: not a piece");
  expect_refusal("tokenizer.model", "YQ== 0\nYg== 2\n", ":2: rank 2 is too large");
  expect_refusal("tokenizer.model", "YQ== 0\nYQ== 1\n", ":2: rank 1 is too large or there twice");
  expect_refusal("qwen.tiktoken", "YQ== 0\n== 1\n", ":2: not a piece");
  expect_refusal("qwen.tiktoken", "YQ== 99999999999\n", ":1: not a piece");
}

TEST(HostileTokenizerFile, OfTekkenIsRefusedByName) {
  Json file = tekken();
  file["config"]["default_num_special_tokens"] = 25;
  expect_refusal("tekken.json", file.dump(), "25 of them special");
  file = tekken();
  file["config"]["default_vocab_size"] = 100;
  expect_refusal("tekken.json", file.dump(), "5 pieces");
  file = tekken();
  file["config"]["pattern"] = "(";
  expect_refusal("tekken.json", file.dump(), "cannot be compiled");
  file = tekken();
  file["vocab"][1]["token_bytes"] = "YQ==";
  expect_refusal("tekken.json", file.dump(), "vocab[1]");
  file = tekken();
  file["special_tokens"] = {{{"rank", 21}, {"token_str", "x"}}};
  expect_refusal("tekken.json", file.dump(), "special token 21");
}

TEST(HostileTokenizerFile, OfSentencePieceIsRefusedByName) {
  const std::string sound = sentencepiece();
  expect_refusal("tokenizer.model", "\n\x7F", "127 bytes, and 0 are left");
  expect_refusal("tokenizer.model", "\n" + std::string(11, '\xFF'), "more than ten bytes");
  expect_refusal("tokenizer.model", sound + piece("a", 1), "\"a\" occurs twice");
  expect_refusal("tokenizer.model", sound + piece("<unk2>", 2), "two unknown pieces");
  expect_refusal("tokenizer.model", sound + piece("z", 5), "unused piece \"z\"");
  expect_refusal("tokenizer.model", sound + piece("z", 7), "type 7");
  expect_refusal("tokenizer.model", sound + piece("\xFF", 1), "a piece that is no text");
  expect_refusal("tokenizer.model", sound + piece("z", 1, std::string("\0\0\xC0\x7F", 4)),
                 "a score that is no number");
  expect_refusal("tokenizer.model", sound + field(2, field(3, 3)), "words or characters");
  expect_refusal("tokenizer.model", sound + field(2, std::string("\xC0\x01\x01", 3)),
                 "treat_whitespace_as_suffix");
  expect_refusal("tokenizer.model", sound + field(3, field(2, "abc")), "map is damaged");
  expect_refusal("tokenizer.model", sound + field(5, field(2, "abc")), "denormalizer");
  expect_refusal("tokenizer.model", "", "tokenizer.model");
}

TEST(HostileTokenizerFile, MayBeCutOffOrChangedAnywhere) {
  const ModelFolder folder;
  for (const char* name : {"spm-bpe", "spm-unigram"}) {
    const std::string sound = core::read_text(golden(name) / "tokenizer.model", 1 << 20);
    for (std::size_t i = 0; i < sound.size(); i += 1 + i / 50) {
      std::string damaged = sound;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 + i % 255));
      for (const std::string& content : {sound.substr(0, i), damaged}) {
        try {
          const Tokenizer tokenizer = load(folder, "tokenizer.model", content);
          for (const std::int32_t id : tokenizer.encode("The fox ﬁ 日本 don't", Encode::document))
            ASSERT_LT(id, tokenizer.vocab_size());
        } catch (const core::Error& error) {
          ASSERT_EQ(error.kind(), core::ErrorKind::input) << i << error.what();
        }
      }
    }
  }
}

TEST(Base64, GivesBackBytesAndRefusesEverythingElse) {
  EXPECT_EQ(from_base64(""), "");
  EXPECT_EQ(from_base64("/+8="), "\xFF\xEF");
  EXPECT_EQ(from_base64("YWJj"), "abc");
  for (const char* bad : {"Y", "YW=", "Y===", "YW J", "Y=Jj", "YWJj\n", "YWJ*"})
    EXPECT_EQ(from_base64(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace finetune::tokenizer::test::tokenizer_kinds_test
