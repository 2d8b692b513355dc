// SPDX-License-Identifier: Apache-2.0
// axolotl: what its lists of data sets say, one by one and together.
#include <gtest/gtest.h>

#include "support/messages.hpp"
#include "unit/migrate/sample.hpp"

namespace finetune::migrate::tests::axolotl_test {
namespace {

using finetune::tests::expect_line_about;
using finetune::tests::expect_message;

const std::string begin = "base_model: m\nlearning_rate: 1e-4\ndatasets:\n";

std::string chat_with(const std::string& key) {
  return begin + "  - {path: d.jsonl, type: chat_template, " + key + "}\n";
}

TEST(MigrateAxolotl, SaysWhichRolesWouldBeTrained) {
  EXPECT_EQ(deck(chat_with("roles_to_train: [assistant, gpt]")).find("roles_to_train"),
            std::string::npos);
  expect_line_about(deck(chat_with("roles_to_train: [assistant, user]")),
                    {"datasets.roles_to_train = [assistant, user]"});
  expect_line_about(deck(chat_with("roles_to_train: []")), {"#   datasets.roles_to_train"});
  const std::string users = chat_with("roles_to_train: [user]");
  expect_message(refusal(users), "", {"theirs.yml:4: datasets.roles_to_train = [user]"});
  expect_line_about(deck(users, {.given = {{"data.train_on", "\"all\""}}}),
                    {"#   datasets.roles_to_train = [user]: "});
}

TEST(MigrateAxolotl, TakesOneOfManyShardsForAPartOfTheData) {
  const std::string made = deck(begin +
                                "  - {path: a, type: alpaca, shards: 4, shards_idx: 1}\n"
                                "  - {path: b, type: alpaca, shards_idx: 2}\n");
  EXPECT_TRUE(has_line(made, "weights = [0.25, 1.0]")) << made;
  expect_line_about(made, {"#   datasets.shards = 4: "});
  expect_line_about(deck(begin + "  - {path: a, type: alpaca}\ntest_datasets:\n"
                                 "  - {path: b, type: alpaca, shards: 4}\n"),
                    {"#   test_datasets.shards = 4: "});
}

TEST(MigrateAxolotl, TakesTheTemplateForChatsAlone) {
  const std::string chat = "  - {path: d.jsonl, type: chat_template}\n";
  const std::string both = begin + chat + "  - {path: a.jsonl, type: alpaca}\n";
  EXPECT_TRUE(has_line(deck(begin + chat + "chat_template: chatml\n"), "template = \"chatml\""));
  const std::string mixed = deck(both + "chat_template: chatml\n");
  EXPECT_TRUE(has_line(mixed, "template = \"chatml\"")) << mixed;
  expect_line_about(mixed, {"chat_template = chatml", "data.template"});
  // By default each format has its own: conversations that of the model.
  const std::string own = deck(both + "chat_template: tokenizer_default\n");
  EXPECT_EQ(own.find("\ntemplate"), std::string::npos) << own;
}

TEST(MigrateAxolotl, TakesTheTemplateOfADataSet) {
  EXPECT_TRUE(has_line(deck(chat_with("chat_template: llama3")), "template = \"llama3\""));
  const std::string two = deck(chat_with("chat_template: llama3") + "chat_template: chatml\n");
  EXPECT_TRUE(has_line(two, "template = \"chatml\"")) << two;
  expect_line_about(two, {"datasets.chat_template = llama3", "data.template"});
}

TEST(MigrateAxolotl, RefusesAColumnThatOnlySomeDataSetsHave) {
  expect_message(refusal(begin + "  - {path: a, type: chat_template, field_system: rules}\n"
                                 "  - {path: b, type: chat_template}\n"),
                 "", {"data.system_column"});
  expect_message(refusal(begin + "  - {path: a, type: gpteacher}\n  - {path: b, type: alpaca}\n"),
                 "", {"data.answer_column"});
  // Columns under their usual names are found where they are there.
  const std::string usual = deck(begin +
                                 "  - {path: a, type: chat_template, field_system: system, "
                                 "field_messages: conversations}\n"
                                 "  - {path: b, type: chat_template}\n");
  EXPECT_EQ(usual.find("_column"), std::string::npos) << usual;
  // Formats that do not read it do not mind.
  EXPECT_TRUE(has_line(deck(begin + "  - {path: a, type: chat_template, field_system: rules}\n"
                                    "  - {path: b, type: completion}\n"),
                       "system_column = \"rules\""));
}

TEST(MigrateAxolotl, LeavesFormatsToTheRecordsWhereOneListCannotNameThem) {
  const std::string two =
      begin + "  - {path: a, type: alpaca}\n  - {path: b, type: chat_template}\n";
  const std::string made = deck(two + "test_datasets:\n  - {path: c, type: chat_template}\n");
  EXPECT_TRUE(has_line(made, "format = \"auto\"")) << made;
  EXPECT_TRUE(has_line(made, "validation_path = \"c\"") ||
              has_line(made, "validation_path = [\"c\"]"))
      << made;
  const std::string crossed =
      two + "test_datasets:\n  - {path: c, type: chat_template}\n  - {path: d, type: alpaca}\n";
  EXPECT_TRUE(has_line(deck(crossed), "format = \"auto\""));
  const std::string same =
      two + "test_datasets:\n  - {path: c, type: alpaca}\n  - {path: d, type: chat_template}\n";
  EXPECT_TRUE(has_line(deck(same), "format = [\"alpaca\", \"chat\"]"));
  EXPECT_TRUE(has_line(deck(begin + "  - {path: a, type: alpaca}\ntest_datasets:\n"
                                    "  - {path: c, type: chat_template}\n"),
                       "format = \"auto\""));
}

}  // namespace
}  // namespace finetune::migrate::tests::axolotl_test
