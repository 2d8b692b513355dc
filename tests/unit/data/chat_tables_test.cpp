// SPDX-License-Identifier: Apache-2.0
// Tables of nested values, some of which have no form in JSON.
#include <gtest/gtest.h>

#include "data/records/fields.hpp"
#include "data/records/records.hpp"
#include "support/folders.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::chat_tables_test {
namespace {

const std::filesystem::path golden = tests::source_folder() / "tests/golden/data";

class ChatTables : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Records> open() const { return open_records(golden / GetParam()); }
};

TEST_P(ChatTables, LackWhatHasNoFormInJsonAndNothingElse) {
  const OrderedJson expected = OrderedJson::parse(tests::file_text(golden / "chats.json"));
  const auto records = open();
  ASSERT_EQ(records->size(), std::ssize(expected));
  // Any order is allowed.
  for (std::int64_t i = records->size() - 1; i >= 0; --i)
    EXPECT_EQ(dump_json(records->object(i)), dump_json(expected[static_cast<std::size_t>(i)]));
}

TEST_P(ChatTables, SayWhatTheyLack) {
  EXPECT_EQ(
      open()->left_out(),
      (std::vector<std::string>{"messages.timestamp", "messages.tool_calls.function.arguments.at",
                                "messages.parts.image", "messages.tags", "messages.times",
                                "messages.meta", "tools.function.since"}));
  EXPECT_TRUE(open()->pads_nulls());
}

INSTANTIATE_TEST_SUITE_P(Files, ChatTables, testing::Values("chats.parquet", "chats.feather"),
                         [](const auto& each) {
                           return std::string(each.param).substr(std::string("chats.").size());
                         });

TEST(RecordsOfJson, LackNothing) {
  const tests::TemporaryFolder folder;
  const auto records = open_records(folder.write("d.jsonl", "{\"a\": {\"b\": null}}"));
  EXPECT_TRUE(records->left_out().empty());
  EXPECT_FALSE(records->pads_nulls());
}

TEST(WithoutNulls, KeepsElementsOfLists) {
  const auto value =
      OrderedJson::parse(R"({"b": null, "a": [null, {"c": null, "d": {"e": null}}], "f": ""})");
  EXPECT_EQ(dump_json(without_nulls(value)), R"({"a": [null, {"d": {}}], "f": ""})");
  EXPECT_TRUE(without_nulls(nullptr).is_null());
}

TEST(DumpJson, WritesNumbersAsPythonDoes) {
  for (const char* text : {"1000000000000000.0", "1e+16", "-0.0", "0.0001", "1e-05", "2e+22", "1.1",
                           "20000000000000000000000", "-9223372036854775809", "1e+300"})
    EXPECT_EQ(dump_json(core::ordered_json(text)), text);
  EXPECT_EQ(dump_json(core::ordered_json("[1.10, 1E2]")), "[1.1, 100.0]");
}

}  // namespace
}  // namespace finetune::data::chat_tables_test
