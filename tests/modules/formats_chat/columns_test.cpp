// SPDX-License-Identifier: Apache-2.0
// Conversations whose parts have other names, that lie in several columns, or in cells of tables.
#include <gtest/gtest.h>

#include "formats/chat/chat.hpp"
#include "unit/data/fake.hpp"

namespace finetune::formats::chat::columns_test {
namespace {

using tests::TemporaryFolder;

std::string read(const data::Format& format, const std::string& name, std::string_view content,
                 const data::Columns& columns) {
  const TemporaryFolder folder;
  std::string text;
  const auto refused = tests::refusal(
      [&] {
        const auto reader = format.open(folder.write(name, content), columns);
        for (std::int64_t i = 0; i < reader->size(); ++i) {
          text += i == 0 ? "" : "\n";
          for (const data::ChatMessage& message : reader->sample(i).conversation.messages)
            text += std::string(data::name_of(message.role)) + ": " + message.text +
                    (message.trained ? "" : " (untrained)") +
                    (message.reasoning.empty() ? "" : " {" + message.reasoning + "}") + "; ";
        }
        throw core::Error(core::ErrorKind::input, "read");
      },
      folder.path());
  return refused == "65: read" ? text : refused;
}

TEST(ChatColumns, MessagesHaveTheNamesOfTheDeck) {
  data::Columns columns;
  columns.conversation = "dialog";
  columns.message_fields = {
      {"content", "text"}, {"reasoning_content", "why"}, {"role", "speaker"}, {"weight", "learn"}};
  columns.roles = {{"assistant", "agent, clerk"}, {"user", "customer"}};
  EXPECT_EQ(
      read(
          format(), "d.jsonl",
          R"({"dialog": [{"speaker": "customer", "text": "a"}, {"speaker": "agent", "text": "b", "why": "r", "learn": false}, {"speaker": "human", "text": "c"}, {"speaker": "clerk", "text": "d"}]})",
          columns),
      "user: a; assistant: b (untrained) {r}; user: c; assistant: d; ");
  // Data sets that are mixed may have the usual names.
  EXPECT_EQ(read(format(), "d.jsonl", R"({"dialog": [{"role": "user", "content": "a"}]})", columns),
            "user: a; ");
}

TEST(ChatColumns, RolesOfTheDeckComeBeforeTheUsual) {
  data::Columns columns;
  columns.roles = {{"assistant", "human"}, {"user", "gpt"}};
  EXPECT_EQ(
      read(sharegpt(), "d.jsonl",
           R"({"conversations": [{"from": "gpt", "value": "a"}, {"from": "human", "value": "b"}]})",
           columns),
      "user: a; assistant: b; ");
}

TEST(ChatColumns, TurnsLieInColumns) {
  data::Columns columns;
  columns.turns = {"q1", "a1", "q2", "a2"};
  EXPECT_EQ(read(format(), "d.csv", "system,q1,a1,q2,a2\ns,a,b,c,d\n,e,f,,\n", columns),
            "system: s; user: a; assistant: b; user: c; assistant: d; \n"
            "user: e; assistant: f; ");
  EXPECT_EQ(read(format(), "d.jsonl", R"({"q1": "a", "a1": "b"})", columns),
            "user: a; assistant: b; ");
  EXPECT_EQ(read(format(), "d.jsonl", R"({"q1": "a", "b1": "b"})", columns),
            "65: d.jsonl:1: field \"a1\" is missing (the fields are \"q1\", \"b1\"). Add it, name "
            "another one in data.turn_columns[1], or choose the data.format of these data.");
  EXPECT_EQ(read(format(), "d.jsonl", R"({"q1": "a", "a1": "b", "a2": "d"})", columns),
            "65: d.jsonl:1: field \"q2\" is empty, but not \"a2\" (a turn would be left out). "
            "Correct this sample, or data.turn_columns.");
}

TEST(ChatColumns, CellsOfTablesHoldJson) {
  EXPECT_EQ(read(format(), "d.csv",
                 "messages\n\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"a\"\"}]\"\n", {}),
            "user: a; ");
  EXPECT_TRUE(read(format(), "d.csv", "messages\n[{'role': 'user'}]\n", {})
                  .starts_with("65: d.csv:2: field \"messages\":1:3: broken JSON ("))
      << read(format(), "d.csv", "messages\n[{'role': 'user'}]\n", {});
}

TEST(ChatColumns, FormatsAreKnownByThem) {
  const TemporaryFolder folder;
  const auto record = [](const char* text) { return core::Json::parse(text); };
  data::Columns columns;
  columns.turns = {"q1", "a1"};
  EXPECT_EQ(format().fits(record(R"({"q1": "a", "a1": "b"})"), columns), data::Fit::strong);
  EXPECT_EQ(messages().fits(record(R"({"q1": "a", "messages": [{"role": "user"}]})"), columns),
            data::Fit::no);
  columns = {};
  columns.message_fields = {{"role", "speaker"}};
  EXPECT_EQ(messages().fits(record(R"({"messages": [{"speaker": "a"}]})"), columns),
            data::Fit::strong);
  EXPECT_EQ(messages().fits(record(R"({"messages": "[{\"role\": \"user\"}]"})"), {}),
            data::Fit::strong);
  EXPECT_EQ(messages().fits(record(R"({"messages": "[{broken"})"), {}), data::Fit::no);
}

}  // namespace
}  // namespace finetune::formats::chat::columns_test
