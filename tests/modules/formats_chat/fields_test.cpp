// SPDX-License-Identifier: Apache-2.0
// What of a message a template is to see: all of it, under the names that templates know.
#include <gtest/gtest.h>

#include "data/text/columns.hpp"
#include "formats/chat/chat.hpp"
#include "support/messages.hpp"
#include "unit/data/fake.hpp"

namespace finetune::formats::chat::fields_test {
namespace {

using data::OrderedJson;
using tests::expect_facts;
using tests::TemporaryFolder;

data::Conversation read(std::string_view record, const data::Columns& columns = {}) {
  const TemporaryFolder folder;
  return format().open(folder.write("d.jsonl", record), columns)->sample(0).conversation;
}

std::string refusal_of(std::string_view record) {
  const TemporaryFolder folder;
  const auto path = folder.write("d.jsonl", record);
  return tests::refusal([&] { format().open(path, {})->sample(0); }, folder.path());
}

/// The fields of one message.
std::string fields_of(const std::string& message, const data::Columns& columns = {}) {
  return data::dump_json(
      read("{\"messages\": [" + message + "]}", columns).messages.front().fields);
}

TEST(ChatFields, StayAsTheyAreInTheirOrder) {
  const std::string message =
      R"({"name": "f", "content": "r", "role": "tool", "tool_call_id": "c1", "extra": {"b": null, "a": [1, null]}, "at": null})";
  EXPECT_EQ(fields_of(message), message);
}

TEST(ChatFields, HaveTheNamesThatTemplatesKnow) {
  EXPECT_EQ(fields_of(R"({"from": "human", "value": "a", "id": 7})"),
            R"({"role": "user", "content": "a", "id": 7})");
  EXPECT_EQ(fields_of(R"({"from": "observation", "value": "a"})"),
            R"({"role": "tool", "content": "a"})");
  EXPECT_EQ(fields_of(R"({"role": "Human", "content": "a"})"),
            R"({"role": "user", "content": "a"})");
  data::Columns columns;
  columns.message_fields = {{"content", "text"}, {"role", "speaker"}, {"reasoning_content", "why"}};
  columns.roles = {{"assistant", "clerk"}};
  EXPECT_EQ(
      fields_of(R"({"role": 3, "text": "a", "speaker": "clerk", "content": 4, "why": "r"})",
                columns),
      R"({"content": "a", "role": "assistant", "why": "r", "reasoning_content": "r", "thinking": "r"})");
}

TEST(ChatFields, RolesAreAsTheDataSayThem) {
  for (const std::string role : {"developer", "function", "ipython", "observation", "tool_response",
                                 "tool_result", "critic", "Critic", ""}) {
    const std::string message = R"({"role": ")" + role + R"(", "content": "a"})";
    EXPECT_EQ(fields_of(message), message);
  }
  EXPECT_EQ(fields_of(R"({"role": "Developer", "content": "a"})"),
            R"({"role": "developer", "content": "a"})");
  data::Columns columns;
  columns.roles = {{"user", "critic, developer"}};
  for (const char* message :
       {R"({"role": "critic", "content": "a"})", R"({"role": "developer", "content": "a"})"})
    EXPECT_EQ(fields_of(message, columns), R"({"role": "user", "content": "a"})");
}

TEST(ChatFields, OfUnknownRolesMayHoldAnything) {
  for (const std::string message :
       {R"({"role": "context", "content": {"k": 1}, "weight": 1})", R"({"role": "context"})",
        R"({"role": "context", "content": ["a", {"type": "image"}], "tool_calls": 7})",
        R"({"role": "context", "content": [{"type": "text", "text": "a"}]})"})
    EXPECT_EQ(fields_of(message), message);
}

TEST(ChatFields, ContentIsATextNullOrAList) {
  EXPECT_EQ(fields_of(R"({"role": "user", "content": null})"),
            R"({"role": "user", "content": null})");
  const std::string parts =
      R"({"role": "user", "content": [{"type": "text", "text": "a", "mark": 1}, {"type": "text", "text": "b"}]})";
  EXPECT_EQ(fields_of(parts), parts);
  EXPECT_EQ(
      fields_of(
          R"({"role": "user", "content": ["a", {"type": "input_text", "text": "b"}, {"type": "text", "value": "c"}]})"),
      R"({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "text", "text": "c"}]})");
  EXPECT_EQ(fields_of(R"({"role": "tool", "content": {"n": 20000000000000000000000}})"),
            R"({"role": "tool", "content": "{\"n\": 20000000000000000000000}"})");
}

TEST(ChatFields, ThoughtsAreThereUnderBothNames) {
  const std::string both =
      R"({"role": "assistant", "content": "a", "thinking": "r", "reasoning_content": "r"})";
  EXPECT_EQ(fields_of(R"({"role": "assistant", "content": "a", "thinking": "r"})"), both);
  EXPECT_EQ(
      fields_of(
          R"({"role": "assistant", "content": "a", "thinking": "r", "reasoning_content": null})"),
      both);
  EXPECT_EQ(fields_of(R"({"role": "assistant", "content": "a", "reasoning_content": "r"})"),
            R"({"role": "assistant", "content": "a", "reasoning_content": "r", "thinking": "r"})");
  EXPECT_EQ(
      fields_of(
          R"({"role": "assistant", "content": "a", "thinking": "one", "reasoning_content": "two"})"),
      R"({"role": "assistant", "content": "a", "thinking": "one", "reasoning_content": "two"})");
  EXPECT_EQ(fields_of(R"({"role": "assistant", "content": "a", "thinking": ""})"),
            R"({"role": "assistant", "content": "a", "thinking": "", "reasoning_content": ""})");
  EXPECT_EQ(fields_of(R"({"role": "assistant", "content": "a", "reasoning_content": ""})"),
            R"({"role": "assistant", "content": "a", "reasoning_content": "", "thinking": ""})");
  for (const std::string thoughts : {"", "r"})
    EXPECT_EQ(
        fields_of(R"({"role": "assistant", "content": "a", "reasoning": ")" + thoughts + "\"}"),
        R"({"role": "assistant", "content": "a", "reasoning": ")" + thoughts +
            R"(", "reasoning_content": ")" + thoughts + R"(", "thinking": ")" + thoughts + "\"}");
  EXPECT_EQ(fields_of(R"({"role": "assistant", "content": "a", "reasoning": null})"),
            R"({"role": "assistant", "content": "a", "reasoning": null})");
  const std::string in_parts = fields_of(
      R"({"role": "assistant", "content": [{"type": "thinking", "thinking": "r"}, {"type": "text", "text": "a"}]})");
  EXPECT_EQ(
      in_parts,
      R"({"role": "assistant", "content": [{"type": "thinking", "thinking": "r"}, {"type": "text", "text": "a"}], "reasoning_content": "r", "thinking": "r"})");
}

TEST(ChatFields, CallsKeepIdsOrderAndTheKindOfTheirArguments) {
  const std::string as_text =
      R"({"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"arguments": "{\"a\":1.10}", "name": "f"}, "index": 0}]})";
  EXPECT_EQ(fields_of(as_text), as_text);
  const std::string as_object =
      R"({"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": null}}, "id": 7}]})";
  EXPECT_EQ(fields_of(as_object), as_object);
  const auto calls = [](const std::string& message) {
    return read("{\"messages\": [" + message + "]}").messages.front().calls.at(0);
  };
  EXPECT_EQ(calls(as_text).arguments, "{\"a\":1.10}");
  EXPECT_TRUE(calls(as_text).is_text);
  EXPECT_EQ(calls(as_text).id, "c1");
  EXPECT_EQ(calls(as_object).arguments, "{\"a\": 1, \"b\": null}");
  EXPECT_FALSE(calls(as_object).is_text);
  EXPECT_EQ(calls(as_object).id, "7");
}

TEST(ChatFields, CallsOfOtherFormsAreWrittenAsTheUsual) {
  const std::string usual =
      R"({"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]})";
  EXPECT_EQ(
      fields_of(
          R"({"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"a": 1}}]})"),
      usual);
  EXPECT_EQ(
      fields_of(
          R"({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]})"),
      usual);
  EXPECT_EQ(
      fields_of(
          R"({"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": {"a": 1}}, "tool_calls": null})"),
      usual);
  EXPECT_EQ(
      fields_of(
          R"({"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"})"),
      usual);
  EXPECT_EQ(
      fields_of(
          R"({"role": "assistant", "content": "", "tool_calls": "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]"})"),
      usual);
  EXPECT_EQ(
      fields_of(
          R"({"role": "assistant", "content": "", "tool_calls": ["{\"name\": \"f\", \"arguments\": {\"a\": 1}}"]})"),
      usual);
  EXPECT_EQ(
      fields_of(
          R"({"role": "assistant", "content": [{"type": "tool_call", "value": "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"}]})"),
      R"({"role": "assistant", "content": [], "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]})");
  EXPECT_EQ(fields_of(R"({"role": "assistant", "content": "a", "tool_calls": []})"),
            R"({"role": "assistant", "content": "a", "tool_calls": []})");
  EXPECT_EQ(fields_of(R"({"role": "assistant", "content": "a", "tool_calls": ""})"),
            R"({"role": "assistant", "content": "a", "tool_calls": ""})");
}

TEST(ChatFields, NumbersKeepTheirDigits) {
  const data::ChatMessage message =
      read(
          R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"wei": 20000000000000000000000, "price": 1.10, "far": 1e15, "id": 18446744073709551615}}]}]})")
          .messages.front();
  EXPECT_EQ(
      message.calls.front().arguments,
      R"({"wei": 20000000000000000000000, "price": 1.1, "far": 1000000000000000.0, "id": 18446744073709551615})");
  EXPECT_EQ(core::exact_digits(
                message.fields.at("tool_calls").at(0).at("function").at("arguments").at("wei")),
            "20000000000000000000000");
}

TEST(ChatFields, ArgumentsAsTextAreJsonAllTheSame) {
  expect_facts(
      refusal_of(
          R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": "{\"a\": "}]}]})"),
      "65: d.jsonl:1: message 1: \"arguments\":1:7");
}

TEST(ChatTools, AreAListATextOrAListOfTexts) {
  const std::vector<std::string> expected = {R"({"name": "f", "n": 20000000000000000000000})"};
  for (const char* tools : {R"([{"name": "f", "n": 20000000000000000000000}])",
                            R"("[{\"name\": \"f\", \"n\": 20000000000000000000000}]")",
                            R"(["{\"name\": \"f\", \"n\": 20000000000000000000000}"])",
                            R"({"name": "f", "n": 20000000000000000000000})"})
    EXPECT_EQ(read(std::string(R"({"messages": [{"role": "user", "content": "a"}], "tools": )") +
                   tools + "}")
                  .tools,
              expected)
        << tools;
  for (const char* tools : {"null", "\"\"", "[]", "\"null\"", "\"[]\""})
    EXPECT_TRUE(read(std::string(R"({"messages": [{"role": "user", "content": "a"}], "tools": )") +
                     tools + "}")
                    .tools.empty())
        << tools;
}

TEST(ChatTools, AreObjects) {
  expect_facts(
      refusal_of(
          R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "f"}, 7]})"),
      "65: d.jsonl:1: field \"tools\": function 2", {"number", "object"});
  expect_facts(
      refusal_of(R"({"messages": [{"role": "user", "content": "a"}], "tools": ["find_owner"]})"),
      "65: d.jsonl:1: field \"tools\": function 1:1:2");
}

TEST(ChatTemplateKwargs, AreAnObjectOrItsText) {
  const auto kwargs = [](const std::string& text) {
    return read(R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": )" +
                text + "}")
        .template_kwargs;
  };
  const OrderedJson expected = {{"reasoning_effort", "high"}, {"enable_thinking", false}};
  EXPECT_EQ(kwargs(R"({"reasoning_effort": "high", "enable_thinking": false})"), expected);
  EXPECT_EQ(kwargs(R"("{\"reasoning_effort\": \"high\", \"enable_thinking\": false}")"), expected);
  EXPECT_TRUE(kwargs("null").is_null());
  EXPECT_TRUE(kwargs("\"\"").is_null());
  EXPECT_TRUE(
      read(R"({"messages": [{"role": "user", "content": "a"}]})").template_kwargs.is_null());
  expect_facts(
      refusal_of(
          R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": ["high"]})"),
      "65: d.jsonl:1: field \"chat_template_kwargs\"", {"array", "object"});
}

TEST(ChatTemplateKwargs, OfTheSampleComeOverThoseOfTheDeck) {
  data::Conversation conversation = read(
      R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"b": null, "c": 3}})");
  data::add_template_kwargs({{"a", 1}, {"b", 2}}, conversation);
  EXPECT_EQ(data::dump_json(conversation.template_kwargs), R"({"a": 1, "b": null, "c": 3})");
  conversation.template_kwargs = nullptr;
  data::add_template_kwargs(nullptr, conversation);
  EXPECT_TRUE(conversation.template_kwargs.is_null());
  data::add_template_kwargs({{"a", 1}}, conversation);
  EXPECT_EQ(data::dump_json(conversation.template_kwargs), R"({"a": 1})");
}

TEST(ChatTemplateKwargs, AreRefusedWhereNoTemplateIs) {
  data::Columns columns;
  columns.template_kwargs = {{"a", 1}};
  const data::Format chats = format();
  const data::Format text{"text", data::Layout::continuous, {}};
  const auto problem = [&](std::vector<const data::Format*> formats) {
    return data::column_problem(columns, formats);
  };
  ASSERT_TRUE(problem({&text}));
  EXPECT_EQ(problem({&text})->key, "template_kwargs");
  EXPECT_FALSE(problem({&text, &chats}));
  columns.template_kwargs = nullptr;
  EXPECT_FALSE(problem({&text}));
}

TEST(ChatTemplateKwargs, MayHaveAnotherColumn) {
  data::Columns columns;
  columns.mapped = {{"chat_template_kwargs", "names"}};
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "content": "a"}], "names": {"x": 1}})", columns)
                .template_kwargs,
            (OrderedJson{{"x", 1}}));
}

}  // namespace
}  // namespace finetune::formats::chat::fields_test
