// SPDX-License-Identifier: Apache-2.0
#include "formats/completion/completion.hpp"

#include <gtest/gtest.h>

#include "support/messages.hpp"
#include "unit/data/fake.hpp"

namespace finetune::formats::completion::completion_test {
namespace {

using tests::expect_message;
using tests::TemporaryFolder;

std::string refusal_of(std::string_view content, const data::Columns& columns = {}) {
  const TemporaryFolder folder;
  const auto path = folder.write("d.jsonl", content);
  return tests::refusal([&] { format().open(path, columns)->sample(0); }, folder.path());
}

TEST(Completion, TheAnswerFollowsThePromptAsItStands) {
  const TemporaryFolder folder;
  const auto sample =
      format()
          .open(folder.write("d.jsonl", R"({"prompt": "1+1=", "completion": " 2"})"), {})
          ->sample(0);
  ASSERT_EQ(sample.segments.size(), 2u);
  EXPECT_EQ(sample.segments[0].text, "1+1=");
  EXPECT_FALSE(sample.segments[0].trained);
  EXPECT_EQ(sample.segments[1].text, " 2");
  EXPECT_TRUE(sample.segments[1].trained);
  ASSERT_EQ(sample.conversation.messages.size(), 2u);
  EXPECT_EQ(sample.conversation.messages[1].text, " 2");
}

TEST(Completion, TheDeckNamesTheColumns) {
  const TemporaryFolder folder;
  data::Columns columns;
  columns.prompt = "question";
  columns.answer = "answer";
  columns.system = "who";
  const auto path =
      folder.write("d.json", R"([{"question": "q", "answer": "a", "who": "s", "prompt": 7}])");
  const auto sample = format().open(path, columns)->sample(0);
  EXPECT_EQ(sample.segments[0].text, "s\n\nq");
  EXPECT_EQ(sample.conversation.messages.size(), 3u);
}

TEST(Completion, ListsOfMessagesAreConversations) {
  const TemporaryFolder folder;
  const auto path = folder.write(
      "d.jsonl",
      R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})"
      "\n"
      R"({"prompt": "q", "completion": [{"role": "assistant", "content": "d"}]})");
  const auto reader = format().open(path, {});
  const auto sample = reader->sample(0);
  EXPECT_TRUE(sample.segments.empty());
  const auto& messages = sample.conversation.messages;
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_FALSE(messages[1].trained);
  EXPECT_TRUE(messages[3].trained);
  EXPECT_EQ(messages[3].text, "d");
  EXPECT_EQ(reader->sample(1).conversation.messages.at(0).text, "q");
  const auto other =
      folder.write("e.jsonl", R"({"prompt": [{"role": "x", "content": "a"}], "completion": "b"})");
  EXPECT_EQ(format().open(other, {})->sample(0).conversation.messages.at(0).role,
            data::ChatRole::other);
}

TEST(Completion, ToolsAndNamesStandBesideMessages) {
  const TemporaryFolder folder;
  const std::string messages =
      R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}], )";
  const auto path = folder.write(
      "d.jsonl",
      messages +
          R"("tools": [{"name": "f", "most": 12345678901234567890123}], "chat_template_kwargs": {"x": 1}})"
          "\n" +
          messages + R"("tools": "[\"{\\\"name\\\": \\\"g\\\"}\"]"})" + "\n" +
          R"({"prompt": "q", "completion": [{"role": "assistant", "content": "d"}], "tools": []})"
          "\n"
          R"({"prompt": "q", "completion": "a", "tools": "hammer", "functions": [{"name": "h"}]})");
  const auto reader = format().open(path, {});
  const auto tools = [&](std::int64_t i) { return reader->sample(i).conversation.tools; };
  EXPECT_EQ(tools(0),
            (std::vector<std::string>{R"({"name": "f", "most": 12345678901234567890123})"}));
  EXPECT_EQ(reader->sample(0).conversation.template_kwargs, (data::OrderedJson{{"x", 1}}));
  EXPECT_EQ(tools(1), (std::vector<std::string>{R"({"name": "g"})"}));
  EXPECT_TRUE(tools(2).empty());
  // Beside texts it may be anything, unless the deck says what it is.
  EXPECT_TRUE(tools(3).empty());
  data::Columns columns;
  columns.tools = "functions";
  EXPECT_EQ(format().open(path, columns)->sample(3).conversation.tools,
            (std::vector<std::string>{R"({"name": "h"})"}));
  expect_message(refusal_of(messages + R"("tools": "hammer"})").substr(4), "d.jsonl:1",
                 {"\"tools\""});
}

TEST(Completion, AFolderIsAllItsFiles) {
  const TemporaryFolder folder;
  folder.write("b.jsonl", R"({"prompt": "2", "completion": ""})");
  folder.write("a.json", R"([{"prompt": "1", "completion": ""}])");
  const auto reader = format().open(folder.path(), {});
  ASSERT_EQ(reader->size(), 2);
  EXPECT_EQ(reader->sample(1).segments[0].text, "2");
  EXPECT_EQ(reader->files().size(), 2u);
}

TEST(Completion, RefusesColumnsThatAreNotThere) {
  EXPECT_EQ(refusal_of(R"({"question": "q", "answer": "a"})"),
            "65: d.jsonl:1: field \"prompt\" is missing (the fields are \"question\", \"answer\"). "
            "Add it, name another one in data.prompt_column, or choose the data.format of these "
            "data.");
  data::Columns columns;
  columns.answer = "answr";
  EXPECT_EQ(
      refusal_of(R"({"prompt": "q", "answer": "a"})", columns),
      "65: d.jsonl:1: field \"answr\" is missing (the fields are \"prompt\", \"answer\"). Did "
      "you mean \"answer\"? Set data.answer_column = \"answer\".");
  EXPECT_EQ(refusal_of(R"({"prompt": "q", "completion": ["a"]})"),
            "65: d.jsonl:1: field \"completion\" is of type array (text is needed). Make it a "
            "string.");
}

TEST(Completion, ColumnsAreMappedByTheNamesOfFields) {
  const TemporaryFolder folder;
  data::Columns columns;
  columns.mapped = {{"prompt", "question"}, {"completion", "answer"}};
  const auto path = folder.write("d.jsonl", R"({"question": "q", "answer": "a", "prompt": 7})");
  const auto sample = format().open(path, columns)->sample(0);
  EXPECT_EQ(sample.segments.at(0).text + sample.segments.at(1).text, "qa");
  columns.mapped["completion"] = "answr";
  EXPECT_EQ(refusal_of(R"({"question": "q", "answer": "a"})", columns),
            "65: d.jsonl:1: field \"answr\" is missing (the fields are \"question\", \"answer\"). "
            "Did you mean \"answer\"? Set data.columns.completion = \"answer\".");
}

TEST(Completion, ATemplateWritesThePromptAndThatIsNotTrained) {
  const TemporaryFolder folder;
  data::Columns columns;
  columns.prompt_template =
      "{{ passage }}\nQuestion: {{ question }}\n{% for c in choices %}{{ loop.index }}. {{ c }}\n"
      "{% endfor %}Answer:";
  columns.answer_template = " {{ choices[right] }}";
  const std::string record =
      R"({"passage": "P.", "question": "Q?", "choices": ["x", "y"], "right": 1, "system": "S"})";
  const auto sample = format().open(folder.write("d.jsonl", record), columns)->sample(0);
  ASSERT_EQ(sample.segments.size(), 2u);
  EXPECT_EQ(sample.segments[0].text, "S\n\nP.\nQuestion: Q?\n1. x\n2. y\nAnswer:");
  EXPECT_FALSE(sample.segments[0].trained);
  EXPECT_EQ(sample.segments[1].text, " y");
  EXPECT_TRUE(sample.segments[1].trained);
  EXPECT_EQ(sample.conversation.messages.at(1).text, "P.\nQuestion: Q?\n1. x\n2. y\nAnswer:");
  EXPECT_EQ(sample.conversation.messages.at(2).text, " y");
}

TEST(Completion, ATemplateNamesTheFieldThatIsNotThere) {
  data::Columns columns;
  columns.prompt_template = "{{ Question }}";
  EXPECT_EQ(refusal_of(R"({"question": "q", "completion": "a"})", columns),
            "65: d.jsonl:1: Question is undefined (data.prompt_template reads it, and there are "
            "question, completion). Did you mean question? {{ name | default('') }} reads what may "
            "be missing.");
  columns.prompt_template = "{{ a / b }}";
  EXPECT_NE(refusal_of(R"({"a": 1, "b": 0, "completion": "a"})", columns)
                .find("65: d.jsonl:1: data.prompt_template cannot be written: "),
            std::string::npos);
}

}  // namespace
}  // namespace finetune::formats::completion::completion_test
