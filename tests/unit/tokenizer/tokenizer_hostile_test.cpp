// SPDX-License-Identifier: Apache-2.0
// Damaged and hostile tokenizer.json files: each is refused by name, none crashes.

#include "tokenizer_files.hpp"

#include <array>
#include <functional>
#include <vector>

namespace finetune::tokenizer::test::tokenizer_hostile_test {
namespace {

Json sound() {
  return Json::parse(R"({
    "version": "1.0",
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}],
    "normalizer": null,
    "pre_tokenizer": null,
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3}, "merges": ["a b"]}})");
}

struct Damage {
  const char* what;
  std::function<void(Json&)> apply;
  const char* message;
};

const std::vector<Damage>& damages() {
  static const std::vector<Damage> all{
      {"unknown_model", [](Json& f) { f["model"]["type"] = "WordPiece"; },
       "model: type \"WordPiece\" is not supported"},
      {"unknown_normalizer",
       [](Json& f) {
         f["normalizer"] = {{"type", "BertNormalizer"}};
       },
       "normalizer: type \"BertNormalizer\" is not supported"},
      {"unknown_pre_tokenizer",
       [](Json& f) {
         f["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", {{{"type", "UnicodeScripts"}}}}};
       },
       "pre_tokenizer.pretokenizers[0]: type \"UnicodeScripts\" is not supported"},
      {"unknown_post_processor",
       [](Json& f) {
         f["post_processor"] = {{"type", "OtherProcessing"}};
       },
       "post_processor: type \"OtherProcessing\" is not supported"},
      {"unknown_decoder",
       [](Json& f) {
         f["decoder"] = {{"type", "WordPiece"}};
       },
       "decoder: type \"WordPiece\" is not supported"},
      {"unknown_member", [](Json& f) { f["model"]["tiebreak"] = 1; },
       "model: unknown member \"tiebreak\""},
      {"unknown_version", [](Json& f) { f["version"] = "2.0"; }, "version 2.0"},
      {"dropout", [](Json& f) { f["model"]["dropout"] = 0.1; }, "dropout is set"},
      {"word_suffix", [](Json& f) { f["model"]["end_of_word_suffix"] = "</w>"; },
       "end_of_word_suffix: a mark inside of words"},
      {"no_model", [](Json& f) { f.erase("model"); }, "\"model\" is missing"},
      {"vocabulary_is_a_list",
       [](Json& f) {
         f["model"]["vocab"] = {1, 2};
       },
       "model.vocab: this is not a JSON object"},
      {"empty_vocabulary", [](Json& f) { f["model"]["vocab"] = Json::object(); }, "0 pieces"},
      {"negative_id", [](Json& f) { f["model"]["vocab"]["a"] = -1; },
       "model.vocab[\"a\"]: this is not a whole number"},
      {"fractional_id", [](Json& f) { f["model"]["vocab"]["a"] = 0.5; },
       "model.vocab[\"a\"]: this is not a whole number"},
      {"huge_id", [](Json& f) { f["model"]["vocab"]["a"] = 2'000'000'000; }, "id 2000000000"},
      {"id_beyond_64_bits", [](Json& f) { f["model"]["vocab"]["a"] = 1e300; },
       "this is not a whole number"},
      {"id_twice", [](Json& f) { f["model"]["vocab"]["b"] = 0; }, "id 0 occurs twice"},
      {"gap_in_ids", [](Json& f) { f["model"]["vocab"]["ab"] = 5; }, "no token has id 3"},
      {"long_piece", [](Json& f) { f["model"]["vocab"][std::string(70'000, 'x')] = 5; },
       "a piece of 70000 bytes"},
      {"merge_of_unknown_piece", [](Json& f) { f["model"]["merges"] = {"a z"}; },
       "merge 0 needs the piece \"z\""},
      {"merge_into_unknown_piece",
       [](Json& f) {
         f["model"]["merges"] = {"a b", "b c"};
       },
       "merge 1 needs the piece \"bc\""},
      {"merge_of_nothing", [](Json& f) { f["model"]["merges"] = {" a"}; },
       "merge 0 needs the piece \"\""},
      {"merge_of_three", [](Json& f) { f["model"]["merges"] = {"a b c"}; },
       "model.merges[0]: this is not a merge"},
      {"merge_is_a_number", [](Json& f) { f["model"]["merges"] = {7}; },
       "model.merges[0]: this is not a merge"},
      {"merges_are_an_object", [](Json& f) { f["model"]["merges"] = Json::object(); },
       "model.merges: this is not a JSON array"},
      {"unknown_token_without_id", [](Json& f) { f["model"]["unk_token"] = "?"; },
       "model.unk_token: the unknown token is not in the vocabulary"},
      {"added_token_takes_an_id", [](Json& f) { f["added_tokens"][0]["id"] = 1; },
       "that is the id of \"b\""},
      {"added_token_has_another_id", [](Json& f) { f["added_tokens"][0]["content"] = "b"; },
       "the model's vocabulary gives it 1"},
      {"added_tokens_share_an_id",
       [](Json& f) {
         f["added_tokens"].push_back({{"id", 4}, {"content", "<t>"}});
       },
       "id 4 occurs twice"},
      {"added_token_twice",
       [](Json& f) {
         f["added_tokens"].push_back({{"id", 5}, {"content", "<s>"}});
       },
       "is there twice"},
      {"added_token_leaves_a_gap", [](Json& f) { f["added_tokens"][0]["id"] = 9; },
       "no token has id 4"},
      {"long_added_token",
       [](Json& f) { f["added_tokens"][0]["content"] = std::string(1025, 'x'); },
       "added_tokens[0]: a token of 1025 bytes"},
      {"added_token_without_text", [](Json& f) { f["added_tokens"][0]["content"] = ""; },
       "added_tokens[0]: a token of 0 bytes"},
      {"template_id_beyond_the_vocabulary",
       [](Json& f) { f["post_processor"]["special_tokens"]["<s>"]["ids"] = {5}; }, "id 5"},
      {"template_of_unknown_token",
       [](Json& f) { f["post_processor"]["special_tokens"] = Json::object(); },
       "\"<s>\" is missing"},
      {"template_without_text", [](Json& f) { f["post_processor"]["single"].erase(1); },
       "leaves out the text"},
      {"pattern_is_broken",
       [](Json& f) {
         f["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "("}}}, {"content", ""}};
       },
       "normalizer.pattern.Regex: the pattern ( cannot be compiled"},
      {"pattern_is_empty",
       [](Json& f) {
         f["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "x"}};
       },
       "the pattern is empty"},
      {"metaspace_contradicts_itself",
       [](Json& f) {
         f["pre_tokenizer"] = {
             {"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", false}};
       },
       "add_prefix_space is false"},
      {"byte_level_before_others",
       [](Json& f) {
         const Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}};
         const Json digits{{"type", "Digits"}, {"individual_digits", true}};
         f["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {byte_level, digits}}};
       },
       "a pre-tokenizer follows ByteLevel"},
      {"byte_fallback_in_bytes",
       [](Json& f) {
         f["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
         f["model"]["byte_fallback"] = true;
       },
       "byte_fallback with ByteLevel, and no piece for byte 0x00"},
  };
  return all;
}

TEST(HostileTokenizer, TheSoundFileIsRead) {
  const ModelFolder folder;
  EXPECT_EQ(folder.load(sound()).encode("abc", Encode::document),
            (std::vector<std::int32_t>{4, 3, 2}));
}

TEST(HostileTokenizer, IsRefusedByName) {
  const ModelFolder folder;
  for (const Damage& damage : damages()) {
    Json file = sound();
    damage.apply(file);
    const std::string message = message_of([&] { folder.load(file); });
    EXPECT_NE(message.find(damage.message), std::string::npos)
        << damage.what << ": " << (message.empty() ? "accepted" : message);
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << damage.what;
  }
}

TEST(HostileTokenizer, MayBeCutOffAnywhere) {
  const ModelFolder folder;
  const std::string text = sound().dump();
  for (std::size_t size = 0; size < text.size(); ++size) {
    folder.write("tokenizer.json", text.substr(0, size));
    EXPECT_THROW(Tokenizer::load(folder.path()), core::Error) << size;
  }
}

TEST(HostileTokenizer, MayHaveAnyValueAnywhere) {
  // Every value of the sound file, replaced by each of these, is read or refused, never a crash.
  const std::vector<Json> values{nullptr,
                                 true,
                                 -1,
                                 3,
                                 1e18,
                                 "",
                                 "\x7F",
                                 Json::array(),
                                 Json::object(),
                                 Json{{"type", "Sequence"}},
                                 Json{1, "a"}};
  const ModelFolder folder;
  const Json flat = sound().flatten();
  for (const auto& [pointer, ignored] : flat.items()) {
    for (Json::json_pointer place(pointer); !place.empty(); place.pop_back()) {
      for (const Json& value : values) {
        Json file = sound();
        file[place] = value;
        try {
          folder.load(file).encode("<s>abc", Encode::document);
        } catch (const core::Error&) {
        }
      }
    }
  }
}

TEST(HostileTokenizer, MayNotChainStepsWithoutEnd) {
  const ModelFolder folder;
  for (const auto& [part, list, step] :
       {std::array{"normalizer", "normalizers", R"({"type": "NFC"})"},
        std::array{"pre_tokenizer", "pretokenizers", R"({"type": "WhitespaceSplit"})"},
        std::array{"decoder", "decoders", R"({"type": "Fuse"})"}}) {
    Json file = sound();
    file[part] = {{"type", "Sequence"}, {list, Json::array()}};
    for (int i = 0; i < 1000; ++i)
      file[part][list].push_back(Json::parse(step));
    EXPECT_NE(message_of([&] { folder.load(file); }).find("too many steps"), std::string::npos)
        << part;
  }
}

TEST(HostileTokenizer, MayNotBlowUpText) {
  const ModelFolder folder;
  Json file = sound();
  const Json longer = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaa"}};
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  for (int i = 0; i < 40; ++i)
    file["normalizer"]["normalizers"].push_back(longer);
  const Tokenizer tokenizer = folder.load(file);
  EXPECT_NE(message_of([&] { tokenizer.encode("a", Encode::document); }).find("blow it up"),
            std::string::npos);
}

TEST(HostileTokenizer, MayNotBlowUpTextPieceByPiece) {
  // Each piece stays within what is always allowed; there are many.
  const ModelFolder folder;
  Json file = sound();
  file["decoder"] = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(100'000, 'x')}};
  const Tokenizer decoding = folder.load(file);
  EXPECT_NE(
      message_of([&] { decoding.decode(std::vector<std::int32_t>(1000, 0)); }).find("blow it"),
      std::string::npos);
  file = sound();
  file["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(100'000, 'b')}};
  const Tokenizer encoding = folder.load(file);
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text += "a<s>";
  EXPECT_NE(message_of([&] { encoding.encode(text, Encode::document); }).find("blow it"),
            std::string::npos);
}

TEST(HostileTokenizer, TokensOfWhiteSpaceTakeLinearTime) {
  // A token that takes the white space before it and is white space: looking at all of it for each
  // would take hours.
  const ModelFolder folder;
  Json file = sound();
  file["added_tokens"].push_back({{"id", 5}, {"content", " "}, {"lstrip", true}});
  const std::string text(std::size_t{1} << 20, ' ');
  EXPECT_EQ(folder.load(file).encode(text, Encode::continuation).size(), text.size());
}

TEST(HostileTokenizer, OrdersAMillionMarksInTime) {
  // Above (class 230) and below (220) in turn: a sort that swaps neighbours would take hours.
  const ModelFolder folder;
  Json file = sound();
  file["normalizer"] = {{"type", "NFC"}};
  file["model"]["unk_token"] = "c";
  file["model"]["fuse_unk"] = true;
  std::string text = "a";
  for (int i = 0; i < 500'000; ++i)
    text += "\u0301\u0323";
  EXPECT_EQ(folder.load(file).encode(text, Encode::continuation).size(), 1U) << "one fused token";
}

TEST(HostileTokenizer, NamesOfTokensDoNotReachTheTerminalRaw) {
  const ModelFolder folder;
  Json file = sound();
  file["model"]["merges"] = {"a \x1b[2J"};
  const std::string message = message_of([&] { folder.load(file); });
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_NE(message.find("\\x1b[2J"), std::string::npos) << message;
  Json long_name = sound();
  long_name["model"]["vocab"][std::string(1 << 20, 'x')] = -1;
  EXPECT_LT(message_of([&] { folder.load(long_name); }).size(), 4000U);
  file["model"]["merges"] = {"a \nerror:"};
  EXPECT_EQ(message_of([&] { folder.load(file); }).find('\n'), std::string::npos);
}

}  // namespace
}  // namespace finetune::tokenizer::test::tokenizer_hostile_test
