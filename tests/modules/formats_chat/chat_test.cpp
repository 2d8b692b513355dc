// SPDX-License-Identifier: Apache-2.0
#include "formats/chat/chat.hpp"

#include <gtest/gtest.h>

#include "data/text/source.hpp"
#include "support/messages.hpp"
#include "unit/data/fake.hpp"

namespace finetune::formats::chat::chat_test {
namespace {

using data::ChatRole;
using tests::TemporaryFolder;

std::vector<data::Sample> read(const data::Format& format, std::string_view content,
                               const data::Columns& columns = {}) {
  const TemporaryFolder folder;
  const auto reader = format.open(folder.write("d.jsonl", content), columns);
  std::vector<data::Sample> samples;
  for (std::int64_t i = 0; i < reader->size(); ++i)
    samples.push_back(reader->sample(i));
  return samples;
}

std::string refusal_of(const data::Format& format, std::string_view content,
                       const data::Columns& columns = {}) {
  const TemporaryFolder folder;
  const auto path = folder.write("d.jsonl", content);
  return tests::refusal(
      [&] {
        const auto reader = format.open(path, columns);
        for (std::int64_t i = 0; i < reader->size(); ++i)
          reader->sample(i);
      },
      folder.path());
}

/// "user: a / assistant: b".
std::string shown(const data::Sample& sample) {
  std::string text;
  for (const data::ChatMessage& message : sample.conversation.messages) {
    text += text.empty() ? "" : " / ";
    text += std::string(data::name_of(message.role)) + ": " + message.text;
    if (!message.reasoning.empty()) text += " {" + message.reasoning + "}";
    for (const data::ToolCall& call : message.calls)
      text += " -> " + call.name + call.arguments;
    if (!message.trained) text += " (untrained)";
  }
  return text;
}

TEST(Chat, ReadsShareGpt) {
  const auto samples = read(
      sharegpt(),
      R"({"id": 1, "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})"
      "\n"
      R"({"conversations": [{"from": "human", "value": "c"}, {"from": "chatgpt", "value": "d"}], "tools": ""})");
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(shown(samples[0]), "system: s / user: a / assistant: b");
  EXPECT_EQ(shown(samples[1]), "user: c / assistant: d");
  EXPECT_TRUE(samples[0].segments.empty());
  EXPECT_TRUE(samples[1].where.ends_with("d.jsonl:2"));
  EXPECT_TRUE(samples[1].conversation.tools.empty());
}

TEST(Chat, ReadsOpenAiMessages) {
  const auto samples = read(
      messages(),
      R"({"messages": [{"role": "developer", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "A"}]}, {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "reasoning_content": "r", "weight": 1}]})");
  EXPECT_EQ(shown(samples.at(0)),
            "system: s / user: aA / assistant: b (untrained) / user: c / assistant: d {r}");
}

TEST(Chat, ReadsQwensConversations) {
  const auto samples = read(
      qwen(),
      R"({"id": "identity_0", "conversations": [{"from": "user", "value": "a"}, {"from": "assistant", "value": "b"}]})");
  EXPECT_EQ(shown(samples.at(0)), "user: a / assistant: b");
}

TEST(Chat, TellsTheKindsApart) {
  const auto samples = read(format(), R"({"messages": [{"role": "user", "content": "a"}]})"
                                      "\n"
                                      R"({"conversations": [{"from": "human", "value": "b"}]})"
                                      "\n"
                                      R"({"conversation": [{"role": "user", "content": "c"}]})");
  EXPECT_EQ(shown(samples[0]) + shown(samples[1]) + shown(samples[2]), "user: auser: buser: c");
  data::Columns columns;
  columns.conversation = "talk";
  EXPECT_EQ(shown(read(format(), R"({"talk": [{"role": "user", "content": "a"}], "messages": 7})",
                       columns)
                      .at(0)),
            "user: a");
}

TEST(Chat, ColumnsAreMappedByTheNamesOfFields) {
  data::Columns columns;
  columns.mapped = {{"messages", "talk"}, {"system", "who"}};
  const std::string record =
      R"({"talk": [{"role": "user", "content": "a"}], "who": "s", "conversations": 7})";
  EXPECT_EQ(shown(read(format(), record, columns).at(0)), "system: s / user: a");
  EXPECT_EQ(shown(read(messages(), record, columns).at(0)), "system: s / user: a");
  columns.mapped = {{"conversations", "talk"}};
  EXPECT_EQ(
      shown(read(sharegpt(), R"({"talk": [{"from": "human", "value": "a"}]})", columns).at(0)),
      "user: a");
}

TEST(Chat, ReadsCallsOfFunctionsInEveryForm) {
  const auto openai = read(
      format(),
      R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": \"é\"}"}}]}, {"role": "tool", "content": {"r": [1, 2]}}]})");
  EXPECT_EQ(shown(openai.at(0)),
            "assistant:  -> f{\"z\": 1, \"a\": \"é\"} / tool: {\"r\": [1, 2]}");
  const auto glaive = read(
      format(),
      R"({"conversations": [{"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"z\": 1, \"a\": 2}}"}, {"from": "observation", "value": "r"}], "tools": "[{\"name\": \"f\", \"b\": 1, \"a\": 2}]"})");
  EXPECT_EQ(shown(glaive.at(0)), "assistant:  -> f{\"z\": 1, \"a\": 2} / tool: r");
  EXPECT_EQ(glaive.at(0).conversation.tools,
            std::vector<std::string>{"{\"name\": \"f\", \"b\": 1, \"a\": 2}"});
  const auto parts = read(
      format(),
      R"({"messages": [{"role": "assistant", "content": [{"type": "reasoning", "value": "r"}, {"type": "tool_call", "value": "{\"name\": \"f\", \"arguments\": {}}"}]}]})");
  EXPECT_EQ(shown(parts.at(0)), "assistant:  {r} -> f{}");
}

TEST(Chat, PutsTheSystemColumnInFront) {
  EXPECT_EQ(
      shown(read(format(), R"({"system": "s", "messages": [{"role": "user", "content": "a"}]})")
                .at(0)),
      "system: s / user: a");
  EXPECT_EQ(
      refusal_of(
          format(),
          R"({"system": "s", "messages": [{"role": "system", "content": "t"}, {"role": "user", "content": "a"}]})"),
      "65: d.jsonl:1: field \"system\" and the first message are two system messages (only one of "
      "the two could be meant). Remove one.");
}

TEST(Chat, ReadsMessagesOfUnknownRoles) {
  const auto samples = read(
      format(),
      R"({"messages": [{"role": "narrator", "content": "n"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  EXPECT_EQ(shown(samples.at(0)), "other: n / user: a / assistant: b");
  EXPECT_EQ(samples.at(0).oddities, 0u);
}

TEST(Chat, KnowsRolesWithCapitals) {
  const auto samples = read(
      format(),
      R"({"messages": [{"role": "System", "content": "s"}, {"role": "User", "content": "a"}, {"role": "ASSISTANT", "content": "b"}]})");
  EXPECT_EQ(shown(samples.at(0)), "system: s / user: a / assistant: b");
  EXPECT_EQ(samples.at(0).oddities, 0u);
}

TEST(Chat, RefusesAColumnThatIsNotThere) {
  EXPECT_EQ(refusal_of(sharegpt(), R"({"conversation": []})"),
            "65: d.jsonl:1: field \"conversations\" is missing (the fields are \"conversation\"). "
            "Did you mean \"conversation\"? Set data.conversation_column = \"conversation\".");
  EXPECT_EQ(refusal_of(format(), R"({"messages": "hello"})"),
            "65: d.jsonl:1: field \"messages\" is of type string (a conversation is a list of "
            "messages). Correct it, or name another field in data.conversation_column.");
}

TEST(Chat, RefusesWhatIsNoMessage) {
  EXPECT_EQ(
      refusal_of(messages(), R"({"messages": [{"from": "human", "value": "a"}]})"),
      "65: d.jsonl:1: message 1: has no \"role\" (its fields are \"from\", \"value\"). Correct "
      "the message, or choose the data.format of these data (\"chat\" reads several).");
  EXPECT_EQ(refusal_of(format(), R"({"messages": [{"role": "user"}]})"),
            "65: d.jsonl:1: message 1: has no \"content\" (its fields are \"role\"). Correct the "
            "message, or choose the data.format of these data (\"chat\" reads several).");
  tests::expect_facts(refusal_of(format(), R"({"messages": ["hello"]})"),
                      "65: d.jsonl:1: message 1", {"string", "object"});
  tests::expect_facts(refusal_of(format(), R"({"messages": [{"role": "user", "content": 7}]})"),
                      "65: d.jsonl:1: message 1", {"\"content\"", "number", "string"});
}

TEST(Chat, RefusesEmptyConversations) {
  tests::expect_facts(refusal_of(format(), R"({"messages": []})"), "65: d.jsonl:1", {"no message"});
}

TEST(Chat, RefusesPicturesBrokenCallsAndOddWeights) {
  EXPECT_EQ(
      refusal_of(
          format(),
          R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]})"),
      "65: d.jsonl:1: message 1: has a part of type \"image_url\" (only text is trained on here). "
      "Remove this part, or the sample.");
  EXPECT_EQ(refusal_of(format(),
                       R"({"conversations": [{"from": "function_call", "value": "{\"f\": 1}"}]})"),
            "65: d.jsonl:1: message 1: calls no function (a call is {\"name\": ..., \"arguments\": "
            "{...}}). Correct or remove this message.");
  EXPECT_TRUE(
      refusal_of(format(), R"x({"conversations": [{"from": "function_call", "value": "f(1)"}]})x")
          .starts_with("65: d.jsonl:1: message 1:1:"));
  EXPECT_EQ(refusal_of(format(),
                       R"({"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]})"),
            "65: d.jsonl:1: message 1: \"weight\" is 0.5 (an answer is trained (1) or not (0), and "
            "nothing else can be with data.train_on = \"answers\"). Make it 0 or 1.");
}

}  // namespace
}  // namespace finetune::formats::chat::chat_test
