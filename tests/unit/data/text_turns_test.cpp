// SPDX-License-Identifier: Apache-2.0
// Turns of conversations and what ends their answers, for people.
#include <gtest/gtest.h>

#include "unit/data/text_sources.hpp"

namespace finetune::data::text_turns_test {
namespace {

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

Sample dialogue() {
  Sample sample = said("one", "two");
  for (const ChatMessage& message : said("three", "four").conversation.messages)
    sample.conversation.messages.push_back(message);
  return sample;
}

TEST(TextTurns, TurnsAreTheTokensOfTheirMessages) {
  const TextSource source = source_of(dialogue(), by(chatml()), qwen());
  const Turns expected = {{"user", "<|im_start|>user\none<|im_end|>\n"},
                          {"assistant", "<|im_start|>assistant\ntwo<|im_end|>\n"},
                          {"user", "<|im_start|>user\nthree<|im_end|>\n"},
                          {"assistant", "<|im_start|>assistant\nfour<|im_end|>\n"}};
  EXPECT_EQ(turns_of(source), expected);
  EXPECT_TRUE(source.sample(0).has_turns);
  EXPECT_FALSE(source_of(said("a", "b"), by(chatml()), qwen()).sample(0).has_turns);
  // Behind the last answer nothing is written.
  Sample longer = dialogue();
  longer.conversation.messages.push_back({ChatRole::user, "five"});
  EXPECT_EQ(turns_of(source_of(longer, by(chatml()), qwen())), expected);
}

TEST(TextTurns, WhatStandsInNoTurnIsTheTemplates) {
  const ChatTemplate chat = template_of(
      mistral(),
      "{{ '<s>' }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' "
      "[/INST]' }}{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}{% endfor %}{{ 'end' }}");
  const Turns turns = turns_of(source_of(dialogue(), by(chat), mistral()));
  ASSERT_EQ(turns.size(), 6u);
  EXPECT_EQ(turns.front(), (Turns::value_type{"template", "<s>"}));
  EXPECT_EQ(turns[2].first, "assistant");
  EXPECT_EQ(turns[2].second.substr(turns[2].second.find('t')), "two</s>");
  EXPECT_EQ(turns.back(), (Turns::value_type{"template", "end"}));
}

TEST(TextTurns, WhatNoTemplateWritesHasNoTurns) {
  EXPECT_TRUE(source_of(completed("a", "b"), by(chatml()), qwen()).turns(0).empty());
  TokenizePolicy policy = by(chatml());
  policy.rewrites = true;
  EXPECT_EQ(source_of(completed("a", "b"), policy, qwen()).turns(0).size(), 2u);
}

/// The tokens that end its answers, one text for each.
std::vector<std::string> ends_of(const TextSource& source) {
  const SourceSample sample = source.sample(0);
  std::vector<std::string> ends;
  for (const TrainedAnswer& answer : sample.answers)
    ends.push_back(
        source.text(std::span(sample.tokens.ids)
                        .subspan(static_cast<std::size_t>(answer.ends_at),
                                 static_cast<std::size_t>(answer.ends_behind - answer.ends_at))));
  return ends;
}

TEST(TextTurns, AnswersSayWhatEndsThem) {
  using Ends = std::vector<std::string>;
  EXPECT_EQ(ends_of(source_of(dialogue(), by(chatml()), qwen())),
            (Ends{"<|im_end|>", "<|im_end|>"}));
  EXPECT_EQ(ends_of(source_of(completed("a", "b"), {}, qwen())), (Ends{"<|im_end|>"}));
  // One token of the markup where the model has another end, and all of several.
  const auto ended_by = [&](const std::string& end) {
    const ChatTemplate chat =
        template_of(qwen(),
                    "{% for m in messages %}{{ '<|im_start|>' + m.content }}{% if m.role == "
                    "'assistant' %}{{ '" +
                        end + "' }}{% endif %}{% endfor %}");
    return ends_of(source_of(said("a", "b"), by(chat), qwen()));
  };
  EXPECT_EQ(ended_by("<|endoftext|>"), (Ends{"<|endoftext|>"}));
  EXPECT_EQ(ended_by("<|im_end|><|im_end|>"), (Ends{"<|im_end|><|im_end|>"}));
  // Special tokens of the template's own in front of the one at which the model stops.
  EXPECT_EQ(ended_by("<|endoftext|><|im_end|>"), (Ends{"<|endoftext|><|im_end|>"}));
  EXPECT_EQ(ended_by("</think><|im_end|>"), (Ends{"<|im_end|>"})) << "no special one";
  // The next turn begins with one, and that is the end; or with none.
  EXPECT_EQ(ended_by("."), (Ends{"<|im_start|>"}));
  const ChatTemplate open = template_of(
      qwen(), "{% for m in messages %}{{ m.role + ': ' + m.content + '.' }}{% endfor %}");
  EXPECT_EQ(ends_of(source_of(said("a", "b"), by(open), qwen())), (Ends{""}));
  TokenizePolicy all = by(chatml());
  all.train_on = TrainOn::all;
  EXPECT_TRUE(ends_of(source_of(dialogue(), all, qwen())).empty());
}

TEST(TextTurns, AnAnswerThatQuotesOthersIsOne) {
  const ChatTemplate quotes = template_of(
      qwen(),
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' "
      "%}{{ 'to ' + m.content + ' (' + messages[0].content + ')' }}{% else %}{{ m.content }}{% "
      "endif %}{{ '<|im_end|>' }}{% endfor %}");
  TextSource source = source_of(said("a question", "an answer"), by(quotes), qwen());
  EXPECT_EQ(ends_of(source), (std::vector<std::string>{"<|im_end|>"}));
  const data::Tokens tokens = source.sample(0).tokens;
  std::string trained;
  for (std::size_t l = 0; l < tokens.ids.size(); ++l)
    trained += tokens.labels[l] == not_trained ? "." : source.text(std::span(&tokens.ids[l], 1));
  EXPECT_EQ(trained.find("question"), std::string::npos) << "it has parts: " << trained;
  EXPECT_NE(trained.find("answer ("), std::string::npos) << trained;
}

TEST(TextTurns, TheModelsEndsAreThoseThatAnExportNames) {
  TokenizePolicy policy = by(chatml());
  policy.ends = {5};
  policy.chat->ends = {5, 7};
  const std::int32_t eos = qwen().eos_id();
  EXPECT_EQ(source_of(dialogue(), policy, qwen()).model_ends(), (std::vector{5, 7, eos}));
  policy.chat->file = "model/chat_template.jinja";
  EXPECT_EQ(source_of(dialogue(), policy, qwen()).model_ends(), std::vector{5});
}

}  // namespace
}  // namespace finetune::data::text_turns_test
