// SPDX-License-Identifier: Apache-2.0
// Conversations in tables, whose structs have the fields of all rows.
#include <gtest/gtest.h>

#include "data/text/source.hpp"
#include "formats/chat/chat.hpp"
#include "formats/completion/completion.hpp"
#include "formats/preference/preference.hpp"
#include "support/folders.hpp"
#include "unit/data/fake.hpp"

namespace finetune::formats::chat::tables_test {
namespace {

const std::filesystem::path golden = tests::source_folder() / "tests/golden/data";

class ChatsInTables : public testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<data::SampleReader> open(const data::Format& format = messages(),
                                                  const data::Columns& columns = {}) {
    return format.open({golden / GetParam()}, columns);
  }
  static std::string fields(const data::Sample& sample, std::size_t message) {
    return data::dump_json(sample.conversation.messages.at(message).fields);
  }
};

TEST_P(ChatsInTables, MessagesHaveNoFieldsOfOthers) {
  const data::Sample sample = open()->sample(0);
  EXPECT_EQ(fields(sample, 0), R"({"role": "user", "content": "Who has the bell?"})");
  EXPECT_EQ(
      fields(sample, 1),
      R"({"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find_owner", "arguments": {"thing": "bell"}}}]})");
  EXPECT_EQ(fields(sample, 2), R"({"role": "tool", "content": "Ina", "name": "find_owner"})");
  EXPECT_EQ(fields(sample, 3),
            R"({"role": "assistant", "content": "Ina has the bell.", "weight": 1})");
}

TEST_P(ChatsInTables, ArgumentsHaveNoFieldsOfOthers) {
  const data::Sample sample = open()->sample(1);
  const auto& calls = sample.conversation.messages.at(1).calls;
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].arguments,
            R"({"count": 4611686018427387905, "options": {"list": ["a", null]}})");
  EXPECT_EQ(calls[1].arguments, "{}");
}

TEST_P(ChatsInTables, FunctionsAndNamesForTheTemplateHaveNoFieldsOfOthers) {
  EXPECT_EQ(
      open()->sample(0).conversation.tools,
      std::vector<std::string>{
          R"({"type": "function", "function": {"name": "find_owner", "parameters": {"properties": {"thing": {"type": "string"}}}}})"});
  EXPECT_EQ(
      open()->sample(1).conversation.tools,
      std::vector<std::string>{
          R"({"type": "function", "function": {"name": "count", "parameters": {"properties": {"count": {"type": "integer", "most": 9}}}}})"});
  EXPECT_TRUE(open()->sample(2).conversation.tools.empty());
  EXPECT_EQ(data::dump_json(open()->sample(0).conversation.template_kwargs),
            R"({"enable_thinking": false})");
  EXPECT_TRUE(open()->sample(1).conversation.template_kwargs.is_null());
}

TEST_P(ChatsInTables, AreCountedWhereAPartWasLeftOut) {
  EXPECT_EQ(open()->sample(0).oddities, static_cast<std::uint32_t>(data::Oddity::left_out_part));
  const tests::TemporaryFolder folder;
  const auto path =
      folder.write("d.jsonl", R"({"messages": [{"role": "user", "content": "a", "b": null}]})");
  EXPECT_EQ(messages().open({path}, {})->sample(0).oddities, 0u);
}

TEST_P(ChatsInTables, AreTheSameWhereTheyArePromptAndAnswer) {
  data::Columns columns;
  columns.prompt = columns.answer = "messages";
  const data::Sample sample = open(completion::format(), columns)->sample(0);
  ASSERT_EQ(sample.conversation.messages.size(), 8u);
  EXPECT_EQ(fields(sample, 6), R"({"role": "tool", "content": "Ina", "name": "find_owner"})");
  EXPECT_EQ(sample.oddities, static_cast<std::uint32_t>(data::Oddity::left_out_part));
  columns = {};
  columns.mapped = {{"chosen", "messages"}, {"rejected", "messages"}};
  const data::Sample pair = open(preference::format(), columns)->sample(0);
  EXPECT_EQ(fields(pair, 2), R"({"role": "tool", "content": "Ina", "name": "find_owner"})");
  EXPECT_EQ(data::dump_json(pair.rejected->conversation.messages.at(2).fields), fields(pair, 2));
  EXPECT_EQ(pair.oddities, sample.oddities);
}

TEST_P(ChatsInTables, PartsOfContentHaveNoFieldsOfOthers) {
  data::Columns columns;
  columns.message_fields = {{"content", "parts"}};
  const auto reader = open(messages(), columns);
  tests::expect_facts(tests::refusal([&] { reader->sample(2); }, golden),
                      "65: " + std::string(GetParam()) + ": row 3: message 1", {"image"});
}

INSTANTIATE_TEST_SUITE_P(Files, ChatsInTables, testing::Values("chats.parquet", "chats.feather"),
                         [](const auto& each) {
                           return std::string(each.param).substr(std::string("chats.").size());
                         });

}  // namespace
}  // namespace finetune::formats::chat::tables_test
