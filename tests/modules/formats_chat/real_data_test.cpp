// SPDX-License-Identifier: Apache-2.0
// Data sets of other people, through the templates and tokenizers of real models.
#include <gtest/gtest.h>

#include <algorithm>

#include "data/text/model_template.hpp"
#include "data/text/text_source.hpp"
#include "formats/alpaca/alpaca.hpp"
#include "formats/chat/chat.hpp"
#include "formats/completion/completion.hpp"
#include "support/material.hpp"
#include "templates/templates.hpp"
#include "unit/data/fake.hpp"

namespace finetune::formats::real_data_test {
namespace {

struct Read {
  std::int64_t samples = 0;
  std::int64_t trained = 0;
  std::uint32_t oddities = 0;
  std::string refusal = "nothing thrown";
};

/// Every sample of a data set with the template of a model, or the one named.
Read read(const char* file, const data::Format& format, const char* model,
          const std::string& name = "model", const data::Columns& columns = {}) {
  static const std::vector<data::ChatTemplate> all = templates::all();
  const auto folder = tests::material(std::string("tokenizers/") + model);
  static std::map<std::string, tokenizer::Tokenizer> tokenizers;
  if (!tokenizers.contains(model)) tokenizers.emplace(model, tokenizer::Tokenizer::load(folder));
  const tokenizer::Tokenizer& tokenizer = tokenizers.at(model);
  data::TokenizePolicy policy;
  if (!name.empty()) {
    policy.chat = data::choose_template(name, folder, tokenizer, all);
    policy.rewrites = true;
  }
  const auto path = tests::material(std::string("datasets/") + file);
  const data::TextSource source(format.open(path, columns), format, columns, policy, tokenizer);
  Read found;
  found.samples = source.size();
  found.refusal = tests::refusal(
      [&] {
        for (std::int64_t i = 0; i < source.size(); i += 7) {
          const data::SourceSample sample = source.sample(i);
          found.oddities |= sample.oddities;
          found.trained += std::ranges::count_if(sample.tokens.labels,
                                                 [](std::int32_t label) { return label >= 0; });
        }
      },
      path.parent_path());
  return found;
}

TEST(RealChats, AreReadWithTheTemplateOfTheModel) {
  REQUIRE_MATERIAL(tests::material("datasets"));
  const Read vicuna = read("sharegpt/dummy_conversation.json", chat::sharegpt(), "qwen2.5");
  EXPECT_EQ(vicuna.refusal, "nothing thrown");
  EXPECT_EQ(vicuna.samples, 500);
  EXPECT_GT(vicuna.trained, 1000);
  EXPECT_EQ(vicuna.oddities, 0u);
  EXPECT_EQ(read("messages/v1_sft_demo.jsonl", chat::messages(), "qwen3").refusal,
            "nothing thrown");
  EXPECT_EQ(read("messages/chat_tiny.json", chat::format(), "mistral-7b-instruct-v0.3").refusal,
            "nothing thrown");
}

TEST(RealChats, WithToolsNeedATemplateThatHasThem) {
  REQUIRE_MATERIAL(tests::material("datasets"));
  EXPECT_EQ(read("sharegpt/glaive_toolcall_en_demo.json", chat::format(), "qwen2.5").refusal,
            "nothing thrown");
  EXPECT_EQ(read("messages/reason_tool_use_demo_50.jsonl", chat::format(), "qwen3").refusal,
            "nothing thrown");
  EXPECT_EQ(
      read("sharegpt/glaive_toolcall_en_demo.json", chat::format(), "llama3", "llama3").refusal,
      "65: glaive_toolcall_en_demo.json:2: entry 1: message 4 (assistant) belongs to a call of a "
      "function (the chat template \"llama3\" has no markup for that). Choose a data.template with "
      "tools (qwen2.5, qwen3), or remove such samples.");
}

TEST(RealChats, NeedATemplate) {
  REQUIRE_MATERIAL(tests::material("datasets"));
  EXPECT_EQ(tests::refusal([] { read("messages/chat_tiny.json", chat::format(), "llama3"); },
                           tests::material("tokenizers")),
            "65: llama3: the model has no chat template (a conversation needs markup that says who "
            "speaks; models that were not trained on conversations have none). Set data.template "
            "to one of \"alpaca\", \"chatml\", \"llama2\", \"llama3\", \"llama3.1\", \"llama4\", "
            "\"mistral-v1\", \"mistral-v3\", \"mistral-v3-tekken\", \"mistral-v7\", \"qwen\", "
            "\"qwen2.5\", \"qwen3\".");
  EXPECT_EQ(
      tests::refusal([] { read("messages/chat_tiny.json", chat::format(), "llama3", "chatml"); },
                     tests::material("tokenizers")),
      "65: llama3: the tokenizer has no token \"<|im_end|>\" (the chat template \"chatml\" ends "
      "answers with it, and spelt in several tokens nothing would stop there). Choose another "
      "data.template, or a model that has the token.");
}

TEST(RealQuestions, AreReadWithTheColumnsOfTheDeck) {
  REQUIRE_MATERIAL(tests::material("datasets"));
  data::Columns columns;
  columns.prompt = "question";
  columns.answer = "answer";
  for (const char* name : {"", "llama3"}) {
    const Read gsm8k = read("gsm8k/test.jsonl", completion::format(), "llama3", name, columns);
    EXPECT_EQ(gsm8k.refusal, "nothing thrown");
    EXPECT_EQ(gsm8k.samples, 1319);
    EXPECT_EQ(gsm8k.oddities, 0u);
  }
  EXPECT_EQ(read("messages/torchtitan_sft_test.json", completion::format(), "llama3", "", columns)
                .refusal,
            "nothing thrown");
  data::Columns dolly;
  dolly.answer = "response";
  EXPECT_EQ(read("dolly/dolly_hhrlhf_train_small.jsonl", completion::format(), "qwen3", "", dolly)
                .refusal,
            "nothing thrown");
  EXPECT_EQ(read("alpaca/instruction-data.json", alpaca::format(), "qwen3").refusal,
            "nothing thrown");
}

}  // namespace
}  // namespace finetune::formats::real_data_test
