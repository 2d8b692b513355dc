// SPDX-License-Identifier: Apache-2.0
// Texts that are begun anew in places, as where a model answers, and where their parts end.

#include <algorithm>
#include <vector>

#include "tokenizer_files.hpp"

namespace finetune::tokenizer::test::stretches_test {
namespace {

using Ids = std::vector<std::int32_t>;
using Parts = std::vector<TextPart>;

/// Letters, "ab" and U+2581 with a letter as pieces, special tokens "<s>" 8 and "<t>" 9, which
/// takes the white space behind it.
Json letters() {
  Json file = Json::parse(R"({"model": {"type": "BPE", "merges": [["a", "b"], ["▁", "a"]],
      "vocab": {"a": 0, "b": 1, "c": 2, "▁": 3, "ab": 4, "▁a": 5, "x": 6, "▁ab": 7, "<": 10, "s": 11, ">": 12}},
      "added_tokens": []})");
  file["model"]["merges"].push_back({"▁", "ab"});
  for (const bool rstrip : {false, true}) {
    file["added_tokens"].push_back({{"id", rstrip ? 9 : 8},
                                    {"content", rstrip ? "<t>" : "<s>"},
                                    {"special", true},
                                    {"rstrip", rstrip}});
  }
  return file;
}

/// As Llama 2's: a prefix behind each special token.
Json with_prepend() {
  Json file = letters();
  file["normalizer"] = Json::parse(R"({"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})");
  return file;
}

Json with_metaspace(const char* scheme) {
  Json file = letters();
  file["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", false}};
  return file;
}

TextPart anew(std::string_view text) {
  return {.text = text, .starts_anew = true};
}

TextPart counted(std::string_view text) {
  return {.text = text, .is_counted = true};
}

Ids ids_of(const Tokenizer& tokenizer, const Parts& parts) {
  return tokenizer.encode(parts, Encode::no_ends);
}

TEST(Stretches, JoinNothingWithWhatIsBeforeThem) {
  const ModelFolder folder;
  const Tokenizer tokenizer = folder.load(letters());
  EXPECT_EQ(ids_of(tokenizer, {{"a"}, {"b"}}), (Ids{4}));
  EXPECT_EQ(ids_of(tokenizer, {{"a"}, anew("b")}), (Ids{0, 1}));
  EXPECT_EQ(ids_of(tokenizer, {{"<"}, anew("s>b")}), (Ids{10, 11, 12, 1}));
  EXPECT_EQ(ids_of(tokenizer, {anew("a"), {"b"}}), (Ids{4}));
}

TEST(Stretches, HaveThePrefixThatTheWholeTextHas) {
  const ModelFolder folder;
  const Tokenizer each = folder.load(with_prepend());
  EXPECT_EQ(ids_of(each, {{"c<s>"}, anew("a")}), (Ids{3, 2, 8, 5}));
  EXPECT_EQ(ids_of(each, {{"c<s>"}, anew("a<s>"), {"c"}}), (Ids{3, 2, 8, 5, 8, 3, 2}));
  EXPECT_EQ(ids_of(each, {{"c"}, anew("a")}), (Ids{3, 2, 0}));
  EXPECT_EQ(ids_of(each, {{"c"}, anew(" a")}), (Ids{3, 2, 5}));
  const Tokenizer first = folder.load(with_metaspace("first"));
  EXPECT_EQ(ids_of(first, {{"c<s>"}, anew("a")}), (Ids{3, 2, 8, 0}));
  EXPECT_EQ(ids_of(first, {{"c"}, anew("a")}), (Ids{3, 2, 0}));
  const Tokenizer always = folder.load(with_metaspace("always"));
  EXPECT_EQ(ids_of(always, {{"c<s>"}, anew("a")}), (Ids{3, 2, 8, 5}));
  EXPECT_EQ(ids_of(always, {{"c"}, anew("a")}), (Ids{3, 2, 0}));
  const Tokenizer never = folder.load(with_metaspace("never"));
  EXPECT_EQ(ids_of(never, {{"c<s>"}, anew("a")}), (Ids{2, 8, 0}));
}

TEST(Stretches, LoseTheSpaceThatATokenBeforeThemTakes) {
  const ModelFolder folder;
  const Tokenizer tokenizer = folder.load(with_prepend());
  EXPECT_EQ(ids_of(tokenizer, {{"<t>"}, anew("  c")}), ids_of(tokenizer, {{"<t>  c"}}));
  EXPECT_EQ(ids_of(tokenizer, {{"<t>"}, anew("  "), {" c"}}), (Ids{9, 3, 2}));
  EXPECT_EQ(ids_of(tokenizer, {{"<s>"}, anew(" c")}), ids_of(tokenizer, {{"<s> c"}}));
}

TEST(Stretches, AreCountedByTheTokensThatBeginBeforeTheirEnd) {
  const ModelFolder folder;
  const Tokenizer tokenizer = folder.load(with_prepend());
  const auto ends = [&](const Parts& parts) {
    return tokenizer.encode_parts(parts, Encode::no_ends).ends;
  };
  using Ends = std::vector<std::size_t>;
  EXPECT_EQ(ends({counted("c<s>"), counted("c")}), (Ends{3, 5}));
  EXPECT_EQ(ends({counted("ca"), counted("bc")}), (Ends{3, 4}));  // ▁ c ab c
  EXPECT_EQ(ends({counted("c"), counted("abc")}), (Ends{2, 4}));  // ▁ c ab c
  EXPECT_EQ(ends({counted("c<t> "), {" c"}}), (Ends{3}));         // ▁ c <t> ▁ c
  EXPECT_EQ(ends({{"c"}, counted(""), anew("a"), counted("")}), (Ends{2, 3}));
  EXPECT_EQ(ends({counted("")}), (Ends{0}));
  EXPECT_EQ(ends({counted("c<"), {"s>c"}}), (Ends{3}));  // ▁ c <s> ▁ c
  // Also where the text begins, whatever begins anew later.
  EXPECT_EQ(ends({counted(""), anew("c"), counted(""), anew("a"), counted("")}), (Ends{0, 2, 3}));
  EXPECT_EQ(ends({counted(""), {"c<s>"}, counted(""), anew("a"), counted("")}), (Ends{0, 3, 4}));
}

TEST(Stretches, AreCountedBehindWhatThePostProcessorPutsBefore) {
  const ModelFolder folder;
  Json file = letters();
  file["post_processor"] = Json::parse(R"({"type": "TemplateProcessing", "single": [
      {"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<t>"}}],
      "special_tokens": {"<s>": {"ids": [8]}, "<t>": {"ids": [9]}}})");
  const Tokenizer tokenizer = folder.load(file);
  const Encoded encoded = tokenizer.encode_parts(Parts{counted("ab"), {"c"}}, Encode::document);
  EXPECT_EQ(encoded.ids, (Ids{8, 4, 2, 9}));
  EXPECT_EQ(encoded.ends, (std::vector<std::size_t>{2}));
  EXPECT_EQ(encoded.num_before, 1u);
  EXPECT_EQ(encoded.num_after, 1u);
}

/// Wherever a text is cut, tokens are those of the whole, and rise by at most one a byte.
TEST(Stretches, OfRealTokenizersAreCountedAnywhere) {
  for (const std::string name : {"llama3", "qwen2", "mistral"}) {
    const Tokenizer tokenizer = Tokenizer::load(golden(name));
    for (const Json& item : golden_json(name + "/cases.json")) {
      const auto text = item.at("text").get<std::string>();
      Parts parts;
      for (std::size_t i = 0; i < text.size(); ++i)
        parts.push_back(counted(std::string_view(text).substr(i, 1)));
      if (parts.empty() || parts.size() > 200) continue;
      const Encoded encoded = tokenizer.encode_parts(parts, Encode::document);
      ASSERT_EQ(encoded.ids, item.at("ids").get<Ids>()) << text;
      ASSERT_TRUE(std::ranges::is_sorted(encoded.ends)) << text;
      ASSERT_EQ(encoded.ends.back(), encoded.ids.size() - encoded.num_after) << text;
      for (const std::size_t end : encoded.ends)
        ASSERT_GT(end, encoded.num_before) << text;
    }
  }
}

TEST(Stretches, OfConversationsHaveTheIdsOfTheLibrary) {
  const Json golden = golden_json("conversations.json");
  for (const Json& each : golden.at("cases")) {
    Json file = golden_json(each.at("tokenizer").get<std::string>() + "/tokenizer.json");
    for (const auto& [key, value] : each.at("change").items())
      file[key] = value;
    const ModelFolder folder;
    const Tokenizer tokenizer = folder.load(file);
    std::vector<std::string> texts;
    Parts parts;
    for (const Json& part : each.at("parts"))
      texts.push_back(part.get<std::string>());
    for (const std::string_view text : texts)
      parts.push_back(text.starts_with('=') ? anew(text.substr(1)) : TextPart{text});
    EXPECT_EQ(ids_of(tokenizer, parts), each.at("ids").get<Ids>()) << each.at("parts");
  }
  EXPECT_GE(golden.at("cases").size(), 20u);
}

}  // namespace
}  // namespace finetune::tokenizer::test::stretches_test
