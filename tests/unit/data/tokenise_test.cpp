// SPDX-License-Identifier: Apache-2.0
// Segments as tokens: those of the one text, with what is trained of it, and its ends once.
#include "data/text/tokenise.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/json.hpp"
#include "data/text/prompt.hpp"
#include "support/files.hpp"
#include "support/folders.hpp"

namespace finetune::data::tokenise_test {
namespace {

using core::Json;
using Ids = std::vector<std::int32_t>;
using tokenizer::Tokenizer;

/// Letters, marks and pieces; special tokens "<s>" 10, which the post-processor puts before a
/// text, "</s>" 11, "<|u|>" 12, "<|a|>" 13, "<|e|>" 14, and "<think>" 15, which is not special. As
/// in Llama 2's file, a prefix goes before each piece between them.
class Tokenise : public testing::Test {
 protected:
  Tokenise() : tokenizer(load(true)) {}

  static Tokenizer load(bool has_prefix) {
    Json file = Json::parse(R"({"model": {"type": "BPE", "merges": [["▁", "b"], ["\n", "\n"]],
        "vocab": {"▁": 0, "a": 1, "b": 2, "c": 3, "\n": 4, "▁b": 5, "\n\n": 6, "d": 7, "e": 8,
        "f": 9, "<": 16, "/": 17, "s": 18, ">": 19}}, "added_tokens": [],
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}, "post_processor": {"type": "TemplateProcessing", "single":
        [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"<s>": {"ids": [10]}}}})");
    for (const char* name : {"<s>", "</s>", "<|u|>", "<|a|>", "<|e|>", "<think>"}) {
      const auto id = 10 + std::ssize(file["added_tokens"]);
      file["added_tokens"].push_back({{"id", id}, {"content", name}, {"special", id < 15}});
    }
    if (has_prefix) {
      file["normalizer"] = Json::parse(R"({"type": "Sequence", "normalizers": [
          {"type": "Prepend", "prepend": "▁"},
          {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})");
    }
    const tests::TemporaryFolder folder;
    folder.write("tokenizer.json", file.dump());
    folder.write("tokenizer_config.json", R"({"eos_token": "</s>", "bos_token": "<s>"})");
    return Tokenizer::load(folder.path());
  }

  TokenisedText chat(const std::vector<Segment>& segments) const {
    return tokenise_text(segments, tokenizer, SpecialNameMeaning::text, false);
  }
  TokenisedText document(const std::vector<Segment>& segments, SpecialNameMeaning names) const {
    return tokenise_text(segments, tokenizer, names, true);
  }
  Ids whole(std::string_view text) const {
    return tokenizer.encode(text, tokenizer::Encode::no_ends);
  }
  static Ids trained(const TokenisedText& text) {
    Ids ids;
    for (const std::int32_t label : text.tokens.labels)
      if (label != not_trained) ids.push_back(label);
    return ids;
  }
  bool all_end(const TokenisedText& text, const Ids& ends) const {
    const auto answers = answers_in(text.tokens, text.runs, ends, tokenizer);
    return std::ranges::all_of(
        answers, [](const TrainedAnswer& answer) { return answer.ends_at < answer.ends_behind; });
  }

  const Tokenizer tokenizer;
};

constexpr bool markup = true;

TEST_F(Tokenise, HasTheTokensOfTheWholeTextBehindAnAnswer) {
  const TokenisedText text = chat({{"<|u|>\na</s>\n<|a|>\n", false, markup},
                                   {"b", true},
                                   {"</s>", true, markup},
                                   {"\n<|u|>\na</s>\n<|a|>\n", false, markup},
                                   {"b", true},
                                   {"</s>", true, markup},
                                   {"\n", false, markup}});
  EXPECT_EQ(text.tokens.ids, whole("<|u|>\na</s>\n<|a|>\nb</s>\n<|u|>\na</s>\n<|a|>\nb</s>\n"));
  EXPECT_EQ(trained(text), (Ids{2, 11, 2, 11}));
  // Behind each special token is a prefix, also behind the one that ends an answer.
  const auto end = std::ranges::find(text.tokens.labels, 11) - text.tokens.labels.begin();
  EXPECT_EQ(text.tokens.ids[static_cast<std::size_t>(end) + 1], 0);
  EXPECT_EQ(text.tokens.ids[static_cast<std::size_t>(end) + 2], 4);
}

TEST_F(Tokenise, HasThePrefixOfAnAnswerRightBehindASpecialToken) {
  const TokenisedText text = chat({{"<|a|>", false, markup}, {"b", true}, {"<|e|>", true, markup}});
  EXPECT_EQ(text.tokens.ids, whole("<|a|>b<|e|>"));
  EXPECT_EQ(trained(text), (Ids{5, 14}));
}

TEST_F(Tokenise, JoinsNothingAtTheBeginOfAnAnswerButElsewhere) {
  const std::vector<Segment> segments = {
      {"a\n", false, markup}, {"\nb\n", true}, {"\na\n", false, markup}, {"\n", false}};
  const TokenisedText text = chat(segments);
  EXPECT_EQ(text.tokens.ids, (Ids{0, 1, 4, 4, 2, 6, 1, 6}));
  // The token with parts of two segments is trained as the one where it begins.
  EXPECT_EQ(trained(text), (Ids{4, 2, 6}));
}

TEST_F(Tokenise, TrainsWhatATextBeginsWithAndNothingBehindIt) {
  const TokenisedText text = chat({{"b", true}, {"</s>", true, markup}, {"a", false}, {"b", true}});
  EXPECT_EQ(text.tokens.ids.size(), text.tokens.labels.size());
  Ids expected = text.tokens.ids;
  const auto end = std::ranges::find(expected, 11) - expected.begin();
  for (auto i = static_cast<std::size_t>(end) + 1; i + 1 < expected.size(); ++i)
    expected[i] = not_trained;
  EXPECT_EQ(text.tokens.labels, expected);
}

TEST_F(Tokenise, IsTheSameHoweverWhatIsTrainedAlikeIsCut) {
  const TokenisedText text = chat({{"<|a|>", false, markup}, {"b</s>c", true}, {"a", false}});
  const TokenisedText cut = chat({{"<|", false, markup},
                                  {"", true},
                                  {"a|>", false, markup},
                                  {"b<", true},
                                  {"", false},
                                  {"/s>c", true},
                                  {"", true, markup},
                                  {"a", false}});
  EXPECT_EQ(cut.tokens.ids, text.tokens.ids);
  EXPECT_EQ(cut.tokens.labels, text.tokens.labels);
  EXPECT_EQ(std::ranges::count(text.tokens.ids, 11), 0);
}

TEST_F(Tokenise, WritesEndsThatTheDataHoldOnce) {
  const auto tokens = SpecialNameMeaning::tokens;
  const TokenisedText lacks = document({{"a", false}, {"b", true}}, tokens);
  EXPECT_EQ(lacks.tokens.ids, (Ids{10, 0, 1, 2, 11}));
  EXPECT_FALSE(lacks.held_ends);
  for (const std::vector<Segment>& segments :
       {std::vector<Segment>{{"a", false}, {"b</s>", true}},
        {{"<s>a", false}, {"b", true}},
        {{"<s>a", false}, {"b</s>", true}},
        {{"<s>a", false, markup}, {"b", true}, {"</s>", false, markup}}}) {
    const TokenisedText holds = document(segments, tokens);
    EXPECT_EQ(holds.tokens.ids, lacks.tokens.ids);
    EXPECT_EQ(holds.tokens.labels, lacks.tokens.labels);
    EXPECT_TRUE(holds.held_ends);
  }
}

TEST_F(Tokenise, TakesNamesOfEndsThatAreTextForNone) {
  const TokenisedText text = document({{"a", false}, {"b</s>", true}}, SpecialNameMeaning::text);
  EXPECT_EQ(trained(text), (Ids{2, 16, 17, 18, 19, 11}));
  EXPECT_FALSE(text.held_ends);
  EXPECT_FALSE(document({}, SpecialNameMeaning::tokens).held_ends);
  EXPECT_EQ(document({}, SpecialNameMeaning::tokens).tokens.ids, (Ids{10, 11}));
}

TEST_F(Tokenise, EncodesADocumentWithEachEndOnce) {
  const std::vector<tokenizer::TextPart> with = {{"<s>a"}};
  const std::vector<tokenizer::TextPart> without = {{"a"}};
  EXPECT_EQ(encode_document(with, tokenizer), (Ids{10, 0, 1}));
  EXPECT_EQ(encode_document(without, tokenizer), (Ids{10, 0, 1}));
  EXPECT_EQ(encode_prompt(tokenizer, "<s>a"), (Ids{10, 0, 1}));
}

TEST_F(Tokenise, FindsTheEndOfATurnWhateverWhiteSpaceIsTrainedBehindIt) {
  const Ids ends = {11, 14};
  const auto said = [&](std::vector<Segment> trained, const char* then) {
    std::vector<Segment> segments = {{"<|a|>", false, markup}};
    segments.insert(segments.end(), trained.begin(), trained.end());
    segments.push_back({then, false, markup});
    return chat(segments);
  };
  EXPECT_TRUE(all_end(said({{"b", true}, {"<|e|>", true, markup}}, "\n<|u|>a"), ends));
  EXPECT_TRUE(all_end(said({{"b", true}, {"<|e|>\n", true, markup}}, "<|u|>a"), ends));
  EXPECT_TRUE(all_end(said({{"b", true}, {"<|e|></s> \n", true, markup}}, ""), ends));
  EXPECT_FALSE(all_end(said({{"b", true}}, "<|e|>\n"), ends));
  EXPECT_FALSE(all_end(said({{"b\n", true}}, "\n"), ends));
  EXPECT_FALSE(all_end(said({{" \n", true}}, "<|e|>\n"), ends));
  EXPECT_FALSE(all_end(said({{"<|e|>", true, markup}, {"b", true}}, ""), ends));
}

TEST_F(Tokenise, TakesATemplatesOwnTokenAtTheEndOfAMarkedTurnForItsEnd) {
  const Ids ends = {11};
  const std::vector<Segment> marked = {{"<|a|>", false, markup},
                                       {"b<|e|>\n", true, markup},
                                       {"<|u|>a<|a|>", false, markup},
                                       {"b</s>", true, markup}};
  EXPECT_EQ(chat(marked).runs.size(), 2u);
  EXPECT_TRUE(all_end(chat(marked), ends));
  // Where the end itself is left out, what stands before it ends nothing.
  EXPECT_FALSE(all_end(chat({{"b<|e|>", true, markup}, {"</s>", false, markup}}), ends));
  // What the data say is no markup.
  EXPECT_FALSE(all_end(tokenise_text(std::vector<Segment>{{"b<|e|>", true}}, tokenizer,
                                     SpecialNameMeaning::tokens, false),
                       ends));
}

TEST_F(Tokenise, AnAnswerIsExpectedWithoutItsEnds) {
  const Ids ends = {11, 14};
  const auto left = [&](const Ids& answer) {
    const auto rest = without_end(answer, ends, tokenizer);
    return Ids(rest.begin(), rest.end());
  };
  EXPECT_EQ(left({1, 2, 14, 11, 4}), (Ids{1, 2}));
  EXPECT_EQ(left({1, 2, 14}), (Ids{1, 2}));
  EXPECT_EQ(left({1, 2, 4}), (Ids{1, 2, 4}));
  EXPECT_EQ(left({14}), Ids{});
}

TEST_F(Tokenise, RunsOfTokensAreThoseOfTheirLabels) {
  const Tokens tokens{{1, 2, 3, 4}, {1, not_trained, 3, 4}};
  const auto runs = runs_of(tokens);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].end, 1u);
  EXPECT_EQ(runs[1].begin, 2u);
  EXPECT_EQ(runs[1].end, 4u);
}

}  // namespace
}  // namespace finetune::data::tokenise_test
