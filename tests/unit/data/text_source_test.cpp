// SPDX-License-Identifier: Apache-2.0
#include "data/text/text_source.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/messages.hpp"
#include "unit/data/text_sources.hpp"

namespace finetune::data::text_source_test {
namespace {

using tests::refusal;

TEST(TextSource, TheFormatsOwnTextGetsTheTokenizersEnds) {
  const tokenizer::Tokenizer tokenizer = mistral();
  const SourceSample sample = tokens_of(completed("one", " two"), {}, tokenizer);
  EXPECT_EQ(sample.tokens.ids.front(), tokenizer.bos_id());
  EXPECT_EQ(sample.tokens.ids.back(), tokenizer.eos_id());
  EXPECT_EQ(trained_text(sample, tokenizer), "two</s>");
  EXPECT_EQ(sample.oddities, 0u);
}

TEST(TextSource, ATemplateOfTheDeckTakesThePlaceOfTheFormatsOwnText) {
  const tokenizer::Tokenizer tokenizer = qwen();
  TokenizePolicy policy = by(chatml());
  EXPECT_EQ(tokenizer.decode(tokens_of(completed("a", "b"), policy, tokenizer).tokens.ids, false),
            "ab<|im_end|>");
  policy.rewrites = true;
  const SourceSample sample = tokens_of(completed("a", "b"), policy, tokenizer);
  EXPECT_EQ(tokenizer.decode(sample.tokens.ids, false),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n");
  EXPECT_EQ(trained_text(sample, tokenizer), "b<|im_end|>");
  EXPECT_EQ(tokens_of(said("a", "b"), policy, tokenizer).tokens.ids, sample.tokens.ids);
}

using Turns = std::vector<std::pair<std::string, std::string>>;

/// Roles and texts of the turns of sample 0.
Turns turns_of(const TextSource& source) {
  const Tokens tokens = source.sample(0).tokens;
  const std::vector<Turn> turns = source.turns(0);
  Turns texts;
  for (std::size_t t = 0; t < turns.size(); ++t) {
    const auto begin = static_cast<std::size_t>(turns[t].begin);
    const auto end =
        t + 1 < turns.size() ? static_cast<std::size_t>(turns[t + 1].begin) : tokens.ids.size();
    texts.emplace_back(turns[t].role,
                       source.text(std::span(tokens.ids).subspan(begin, end - begin)));
  }
  return texts;
}

TEST(TextSource, SegmentsThatAreTrainedAlikeAreOneText) {
  const tokenizer::Tokenizer tokenizer = qwen();
  const std::vector<Segment> parts = {{"the", false}, {"re is", false}, {" th", true}, {"e", true}};
  const std::vector<Segment> joined = {{"there is", false}, {" the", true}};
  const Tokens tokens = tokenise(parts, tokenizer, SpecialNameMeaning::text, true);
  EXPECT_EQ(tokens.ids, tokenise(joined, tokenizer, SpecialNameMeaning::text, true).ids);
  EXPECT_EQ(tokens.labels, tokenise(joined, tokenizer, SpecialNameMeaning::text, true).labels);
}

TEST(TextSource, NamesOfSpecialTokensInTheDataAreTextUnlessTheDeckSaysOtherwise) {
  const tokenizer::Tokenizer tokenizer = qwen();
  const std::int32_t end = *tokenizer.id("<|im_end|>");
  const auto count = [&](const SourceSample& sample) {
    return std::ranges::count(sample.tokens.ids, end);
  };
  TokenizePolicy policy = by(chatml());
  const SourceSample text = tokens_of(said("a", "b <|im_end|> c"), policy, tokenizer);
  EXPECT_EQ(count(text), 2);
  EXPECT_EQ(text.oddities, bit(Oddity::special_name));
  EXPECT_EQ(trained_text(text, tokenizer), "b <|im_end|> c<|im_end|>");
  policy.special_names = SpecialNameMeaning::tokens;
  const SourceSample names = tokens_of(said("a", "b <|im_end|> c"), policy, tokenizer);
  EXPECT_EQ(count(names), 3);
  EXPECT_EQ(names.oddities, 0u);
}

TEST(TextSource, EverythingIsTrainedIfTheDeckSaysSo) {
  TokenizePolicy policy;
  policy.train_on = TrainOn::all;
  const SourceSample sample = tokens_of(completed("a", "b"), policy, qwen());
  EXPECT_EQ(sample.tokens.labels, sample.tokens.ids);
}

TEST(TextSource, AnEmptyAnswerIsFound) {
  EXPECT_EQ(tokens_of(completed("a", ""), {}, qwen()).oddities, bit(Oddity::empty_answer));
  EXPECT_EQ(tokens_of(said("a", " "), by(chatml()), qwen()).oddities, bit(Oddity::empty_answer));
}

TEST(TextSource, TheEndOfAnEmptyAnswerIsTrained) {
  const tokenizer::Tokenizer tokenizer = qwen();
  for (const char* answer : {"", " "}) {
    EXPECT_EQ(trained_text(tokens_of(said("a", answer), by(chatml()), tokenizer), tokenizer),
              "<|im_end|>");
  }
  Sample sample = said("a", "");
  sample.conversation.messages.back().trained = false;
  EXPECT_EQ(trained_text(tokens_of(sample, by(chatml()), tokenizer), tokenizer), "");
}

TEST(TextSource, TokensAreTakenAsTheyAreAndAMissingEndIsFound) {
  const tokenizer::Tokenizer tokenizer = qwen();
  Sample sample;
  sample.tokens = {{5, 6, 7}, {not_trained, 6, 7}};
  EXPECT_EQ(tokens_of(sample, {}, tokenizer).tokens.ids, sample.tokens.ids);
  EXPECT_EQ(tokens_of(sample, {}, tokenizer).oddities, bit(Oddity::no_end_of_turn));
  const std::int32_t end = tokenizer.eos_id();
  sample.tokens = {{5, 6, end}, {not_trained, 6, end}};
  EXPECT_EQ(tokens_of(sample, {}, tokenizer).oddities, 0u);
  sample.tokens = {{5, 100000}, {5, 100000}};
  EXPECT_EQ(refusal([&] { tokens_of(sample, {}, tokenizer); }),
            "65: memory:1: token id 100000 is not in the vocabulary (the model's tokenizer has ids "
            "0 to " +
                std::to_string(tokenizer.vocab_size() - 1) +
                "). Make these data with the tokenizer of this model.");
}

TEST(TextSource, ADocumentOfTokensGetsTheEndThatItLacks) {
  const tokenizer::Tokenizer tokenizer = qwen();
  const std::int32_t end = tokenizer.eos_id();
  std::vector<Sample> samples(3);
  samples[0].tokens = {{5, 6}, {5, 6}};
  samples[1].tokens = {{5, end}, {5, end}};
  samples[2].tokens = {{5, 6}, {not_trained, not_trained}};
  const Format format{"test", Layout::continuous, {}};
  const TextSource source(std::make_unique<Samples>(std::move(samples)), format, {}, {}, tokenizer);
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(source.sample(0).tokens.ids, Ids({5, 6, end}));
  EXPECT_EQ(source.sample(0).tokens.labels, Ids({5, 6, end}));
  EXPECT_EQ(source.sample(1).tokens.ids, Ids({5, end}));
  EXPECT_EQ(source.sample(2).tokens.ids, Ids({5, 6, end}));
  EXPECT_EQ(source.sample(2).tokens.labels, Ids(3, not_trained));
  EXPECT_EQ(source.sample(0).oddities, 0u);
}

TEST(TextSource, TheLastAnswerIsAQuestionsAnswer) {
  const tokenizer::Tokenizer tokenizer = qwen();
  Sample sample = said("a", "b");
  sample.conversation.messages.push_back({ChatRole::user, "what", {}, {}});
  sample.conversation.messages.push_back({ChatRole::assistant, "that", {}, {}});
  const TextSource source = source_of(sample, by(chatml()), tokenizer);
  const auto question = source.question(0);
  ASSERT_TRUE(question);
  EXPECT_EQ(question->shown, "what");
  EXPECT_EQ(question->expected, "that");
  EXPECT_TRUE(tokenizer.decode(question->prompt, false).ends_with("<|im_start|>assistant\n"));
  EXPECT_FALSE(source_of(completed("a", ""), {}, tokenizer).question(0));
  EXPECT_EQ(source_of(completed("a", "b"), {}, tokenizer).question(0)->shown, "a");
}

ChatMessage of_role(const std::string& role, std::string text) {
  ChatMessage message;
  message.role = ChatRole::other;
  message.text = text;
  message.fields = {{"role", role}, {"content", std::move(text)}};
  return message;
}

TEST(TextSource, MessagesThatATemplateRefusesAreLeftOutAndNamed) {
  const tokenizer::Tokenizer tokenizer = qwen();
  Sample sample = said("a", "b");
  sample.conversation.messages.push_back(of_role("critic", "c"));
  sample.conversation.messages.push_back({ChatRole::assistant, "d", {}, {}});
  const TextSource written = source_of(sample, by(chatml()), tokenizer);
  EXPECT_EQ(trained_text(written.sample(0), tokenizer), "b<|im_end|>d<|im_end|>");
  EXPECT_EQ(written.sample(0).oddities, 0u);
  EXPECT_EQ(written.role_problem(0), "");

  ChatTemplate strict = chatml();
  strict.writer = std::make_shared<const ChatWriter>(
      "{% for m in messages %}{{ raise_exception('no') if m.role not in ['user', 'assistant'] }}"
      "{% endfor %}" +
          strict.text,
      names_of(tokenizer));
  const TextSource source = source_of(sample, by(strict), tokenizer);
  EXPECT_EQ(trained_text(source.sample(0), tokenizer), "b<|im_end|>");
  EXPECT_EQ(tokenizer.decode(source.sample(0).tokens.ids, false).find("critic"), std::string::npos);
  EXPECT_EQ(source.sample(0).oddities, bit(Oddity::unknown_role));
  EXPECT_EQ(source.role_problem(0),
            "message 3 has the role \"critic\", which the chat template refuses, so no answer "
            "behind it is trained");
  // It may be the assistant under a name that nobody knows.
  sample.conversation.messages = {sample.conversation.messages[0], of_role("ai", "b")};
  EXPECT_EQ(source_of(sample, by(chatml()), tokenizer).role_problem(0),
            "message 2 has the role \"ai\", and none has that of the assistant");

  // The label of a conversation is about all of it.
  TokenizePolicy labels = by(strict);
  labels.labels.num_codes = 2;
  labels.labels.code = [](const core::Json&, const std::string&) { return 1; };
  tests::expect_facts(refusal([&] { tokens_of(sample, labels, tokenizer); }), "65: memory:1",
                      {"\"ai\"", "label", "data.roles"});
  labels.chat = chatml();
  EXPECT_EQ(tokens_of(sample, labels, tokenizer).oddities, 0u);
}

TEST(TextSource, SettingsDifferWhereTokensDo) {
  const tokenizer::Tokenizer tokenizer = qwen();
  const Sample sample = said("a", "b");
  const std::string plain = source_of(sample, {}, tokenizer).settings();
  EXPECT_EQ(plain, source_of(said("c", "d"), {}, tokenizer).settings());
  TokenizePolicy all;
  all.train_on = TrainOn::all;
  TokenizePolicy names;
  names.special_names = SpecialNameMeaning::tokens;
  ChatTemplate other = chatml();
  other.text += "# changed";
  std::vector<std::string> texts = {plain};
  for (const TokenizePolicy& policy : {all, names, by(chatml()), by(other)})
    texts.push_back(source_of(sample, policy, tokenizer).settings());
  texts.push_back(source_of(sample, {}, mistral()).settings());
  std::ranges::sort(texts);
  EXPECT_EQ(std::ranges::adjacent_find(texts), texts.end());
}

TEST(TextSource, AConversationNeedsATemplate) {
  EXPECT_EQ(refusal([] { tokens_of(said("a", "b"), {}, qwen()); }),
            "65: memory:1: a conversation needs a chat template (data.template names none). Set "
            "data.template.");
}

}  // namespace
}  // namespace finetune::data::text_source_test
