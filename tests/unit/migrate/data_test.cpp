// SPDX-License-Identifier: Apache-2.0
// What others call the parts of conversations.
#include <gtest/gtest.h>

#include "unit/migrate/sample.hpp"

namespace finetune::migrate::tests::data_test {
namespace {

TEST(MigrateData, TakesNamesOfAxolotlsMessages) {
  const std::string made = deck(
      "base_model: m\nlearning_rate: 1e-4\ndatasets:\n  - path: d.jsonl\n    type: chat_template\n"
      "    field_messages: dialog\n    message_field_training: learn\n"
      "    message_property_mappings:\n      role: speaker\n      content: text\n"
      "    roles:\n      user: [human, customer]\n      assistant: [gpt, agent, clerk]\n");
  EXPECT_TRUE(has_line(made, "conversation_column = \"dialog\"")) << made;
  EXPECT_TRUE(has_line(made, "message_fields.role = \"speaker\"")) << made;
  EXPECT_TRUE(has_line(made, "message_fields.content = \"text\"")) << made;
  EXPECT_TRUE(has_line(made, "message_fields.weight = \"learn\"")) << made;
  EXPECT_TRUE(has_line(made, "roles.user = \"customer\"")) << made;
  EXPECT_TRUE(has_line(made, "roles.assistant = \"agent, clerk\"")) << made;
}

TEST(MigrateData, TakesNamesOfLlamaFactorysColumnsAndTags) {
  Options options;
  options.read_named = [](const std::string& path) -> std::optional<std::string> {
    if (path != "data/dataset_info.json") return std::nullopt;
    return R"({"a": {"file_name": "a.json", "formatting": "sharegpt",
                     "columns": {"messages": "talk"},
                     "tags": {"role_tag": "speaker", "content_tag": "content",
                              "user_tag": "customer", "assistant_tag": "gpt",
                              "observation_tag": "result"}},
               "b": {"file_name": "b.json",
                     "columns": {"prompt": "q", "response": "a", "history": "before"}}})";
  };
  const std::string begin = "model_name_or_path: m\nstage: sft\ntemplate: llama3\ndataset: ";
  const std::string shares = deck(begin + "a\n", options);
  EXPECT_TRUE(has_line(shares, "conversation_column = \"talk\"")) << shares;
  EXPECT_TRUE(has_line(shares, "message_fields.role = \"speaker\"")) << shares;
  EXPECT_EQ(shares.find("message_fields.content"), std::string::npos) << shares;
  EXPECT_TRUE(has_line(shares, "roles.user = \"customer\"")) << shares;
  EXPECT_TRUE(has_line(shares, "roles.tool = \"result\"")) << shares;
  EXPECT_EQ(shares.find("roles.assistant"), std::string::npos) << shares;
  const std::string pairs = deck(begin + "b\n", options);
  EXPECT_TRUE(has_line(pairs, "columns.history = \"before\"")) << pairs;
}

TEST(MigrateData, TakesTrlsPartOfADataSet) {
  const std::string made =
      deck("model_name_or_path: m\ndataset_name: d\ndataset_config: main\nlearning_rate: 1e-4\n",
           {.from = "trl"});
  EXPECT_TRUE(has_line(made, "subset = \"main\"")) << made;
}

}  // namespace
}  // namespace finetune::migrate::tests::data_test
