// SPDX-License-Identifier: Apache-2.0
// What of a rendered conversation is trained, what is left out, and what is refused.
#include <gtest/gtest.h>

#include "data/text/source.hpp"
#include "modules/templates/chats.hpp"
#include "unit/data/fake.hpp"

namespace finetune::tests::segments_test {
namespace {

using data::Oddity;
using data::TrainOn;

data::Conversation talk(std::string_view messages) {
  return conversation(data::OrderedJson::parse("{\"messages\": [" + std::string(messages) + "]}"));
}

constexpr const char* two_turns =
    R"({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
       {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"})";

/// The text, with what is trained in ‹ ›.
std::string marked(const data::Rendered& rendered) {
  std::string text;
  bool trained = false;
  for (const data::Segment& segment : rendered.segments) {
    if (segment.trained != trained) text += trained ? "›" : "‹";
    trained = segment.trained;
    text += segment.text;
  }
  return text + (trained ? "›" : "");
}

std::string marked(std::string_view name, const data::Conversation& talk,
                   TrainOn train_on = TrainOn::answers) {
  return marked(render(chat_template(name), talk, train_on, "c.json:1"));
}

std::string refused(std::string_view name, std::string_view messages) {
  return refusal([&] { marked(name, talk(messages)); });
}

TEST(RenderedSegments, AnAnswerIsTrainedUpToTheTokenThatEndsItsTurn) {
  EXPECT_EQ(
      marked("chatml", talk(two_turns)),
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n‹b<|im_end|>›\n<|im_start|>user\n"
      "c<|im_end|>\n<|im_start|>assistant\n‹d<|im_end|>›\n");
  EXPECT_EQ(marked("llama2", talk(two_turns)),
            "<s>[INST] a [/INST]‹ b </s>›<s>[INST] c [/INST]‹ d </s>›");
  EXPECT_EQ(marked("mistral-v3-tekken", talk(two_turns)),
            "<s>[INST]a[/INST]‹b</s>›[INST]c[/INST]‹d</s>›");
  EXPECT_EQ(marked("alpaca", talk(two_turns)),
            "<s>Below is an instruction that describes a task. Write a response that appropriately "
            "completes the request.\n\n### Instruction:\na\n\n### Response:\n‹b</s>›### "
            "Instruction:\nc\n\n### Response:\n‹d</s>›");
}

TEST(RenderedSegments, EverythingIsTrainedIfTheDeckSaysSo) {
  EXPECT_EQ(marked("llama2", talk(two_turns), TrainOn::all),
            "‹<s>[INST] a [/INST] b </s><s>[INST] c [/INST] d </s>›");
}

TEST(RenderedSegments, WhatAModelThinksIsPartOfItsAnswer) {
  EXPECT_EQ(
      marked("qwen3", talk(two_turns)),
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n‹b<|im_end|>›\n<|im_start|>user\n"
      "c<|im_end|>\n<|im_start|>assistant\n‹<think>\n\n</think>\n\nd<|im_end|>›\n");
}

TEST(RenderedSegments, MarkupAndTextAreToldApart) {
  const auto rendered = render(chat_template("llama2"), talk(R"(
      {"role": "system", "content": "s"}, {"role": "user", "content": "a"},
      {"role": "assistant", "content": "b"})"),
                               TrainOn::answers, "c.json:1");
  std::string text;
  for (const data::Segment& segment : rendered.segments)
    text += (segment.markup ? "|" : "") + segment.text + (segment.markup ? "|" : "");
  EXPECT_EQ(text, "|<s>[INST] <<SYS>>\n|s|\n<</SYS>>\n\n|a| [/INST]|| |b| </s>|");
}

TEST(RenderedSegments, OfAnEmptyAnswerOnlyItsEndIsTrained) {
  const auto rendered = render(chat_template("chatml"), talk(R"(
      {"role": "user", "content": "a"}, {"role": "assistant", "content": " "},
      {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"})"),
                               TrainOn::answers, "c.json:1");
  EXPECT_EQ(rendered.oddities, static_cast<std::uint32_t>(Oddity::empty_answer));
  EXPECT_EQ(
      marked(rendered),
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n ‹<|im_end|>›\n<|im_start|>user\n"
      "c<|im_end|>\n<|im_start|>assistant\n‹d<|im_end|>›\n");
}

TEST(RenderedSegments, AnAnswerOfWeightZeroIsNotTrained) {
  EXPECT_EQ(marked("llama2", talk(R"(
      {"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0},
      {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "weight": 1})")),
            "<s>[INST] a [/INST] b </s><s>[INST] c [/INST]‹ d </s>›");
}

TEST(RenderedSegments, WhatFollowsTheLastAnswerIsLeftOut) {
  EXPECT_EQ(marked("llama2", talk(R"(
      {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
      {"role": "user", "content": "c"})")),
            "<s>[INST] a [/INST]‹ b </s>›");
  EXPECT_EQ(marked("llama2", talk(R"({"role": "user", "content": "a"})")), "<s>[INST] a [/INST]");
}

TEST(RenderedSegments, TwoAnswersInARowAreFineWhereTurnsAreMarked) {
  EXPECT_EQ(marked("chatml", talk(R"({"role": "assistant", "content": "b"},
                                     {"role": "assistant", "content": "c"})")),
            "<|im_start|>assistant\n‹b<|im_end|>›\n<|im_start|>assistant\n‹c<|im_end|>›\n");
}

TEST(RenderedSegments, TurnsThatDoNotAlternateAreRefusedWhereTheyMust) {
  EXPECT_EQ(refused("llama2", R"({"role": "user", "content": "a"},
                                 {"role": "assistant", "content": "b"},
                                 {"role": "assistant", "content": "c"})"),
            "65: c.json:1: message 3 (assistant) stands where user should speak (in the chat "
            "template \"llama2\" user and assistant take turns, the user first). Correct or remove "
            "this conversation, or choose another data.template.");
  EXPECT_EQ(
      refused("mistral-v1", R"({"role": "assistant", "content": "b"})"),
      "65: c.json:1: message 1 (assistant) stands where user should speak (in the chat "
      "template \"mistral-v1\" user and assistant take turns, the user first). Correct or remove "
      "this conversation, or choose another data.template.");
}

TEST(RenderedSegments, WhatATemplateHasNoMarkupForIsRefused) {
  EXPECT_EQ(refused("llama2", R"({"role": "user", "content": "a"},
                                 {"role": "system", "content": "s"},
                                 {"role": "assistant", "content": "b"})"),
            "65: c.json:1: message 2 (system) is not the first (the chat template \"llama2\" has "
            "one system message, at the start). Move it there, or choose another data.template.");
  EXPECT_EQ(refused("llama3", R"({"role": "tool", "content": "a"},
                                 {"role": "assistant", "content": "b"})"),
            "65: c.json:1: message 1 (tool) belongs to a call of a function (the chat template "
            "\"llama3\" has no markup for that). Choose a data.template with tools (qwen2.5, "
            "qwen3), or remove such samples.");
  EXPECT_EQ(refused("chatml", R"({"role": "assistant", "content": "b", "reasoning": "r"})"),
            "65: c.json:1: message 1 (assistant) holds reasoning (the chat template \"chatml\" has "
            "no markup for that). Choose a data.template that thinks (qwen3), or remove the "
            "reasoning.");
}

TEST(RenderedSegments, TheTokenThatEndsAnAnswerIsWhatTheTemplateMarksBehindIt) {
  EXPECT_EQ(chat_template("qwen3").stop, "<|im_end|>");
  EXPECT_EQ(chat_template("llama3.1").stop, "<|eot_id|>");
  EXPECT_EQ(chat_template("llama4").stop, "<|eot|>");
  EXPECT_EQ(chat_template("llama2").stop, "</s>");
  EXPECT_EQ(chat_template("alpaca", "", "<end>").stop, "<end>");
}

}  // namespace
}  // namespace finetune::tests::segments_test
