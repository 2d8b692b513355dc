// SPDX-License-Identifier: Apache-2.0
// Keys, tables and values as other programs call them. That each row of the tables leads to a key
// that there is: alias_targets_test.cpp.
#include "deck/aliases.hpp"

#include <set>

#include "support/messages.hpp"
#include "unit/deck/sample.hpp"

namespace finetune::deck::aliases_test {
namespace {

using finetune::tests::expect_message;
using finetune::tests::expect_words;

std::string first_line(const std::string& message) {
  return message.substr(0, message.find('\n'));
}

TEST(Aliases, HaveNamesAsTheyAreLookedUpAndNoneTwice) {
  std::set<std::string_view> names;
  for (const KeyAlias& alias : key_aliases()) {
    EXPECT_EQ(plain_name(alias.name), alias.name);
    EXPECT_TRUE(names.insert(alias.name).second) << alias.name;
    EXPECT_FALSE(alias.here.empty() && alias.note.empty()) << alias.name;
    EXPECT_FALSE(alias.note.ends_with('.')) << alias.name << ": a message ends it";
  }
  names.clear();
  for (const TableAlias& alias : table_aliases()) {
    EXPECT_EQ(plain_name(alias.name), alias.name);
    EXPECT_TRUE(names.insert(alias.name).second) << alias.name;
  }
  std::set<std::pair<std::string_view, std::string_view>> values;
  for (const ValueAlias& alias : value_aliases()) {
    EXPECT_TRUE(values.insert({alias.key, alias.value}).second) << alias.key << " " << alias.value;
    EXPECT_EQ(find_value_alias(alias.key, alias.value), alias.here);
  }
}

TEST(Aliases, AreSplitIntoTableKeyAndValue) {
  const KeyAlias plain{"learning_rate", "optimizer.lr"};
  EXPECT_EQ(plain.table(), "optimizer");
  EXPECT_EQ(plain.key(), "lr");
  EXPECT_EQ(plain.value(), "");
  const KeyAlias full{"fp16", R"(precision.mode = "16-mixed")"};
  EXPECT_EQ(full.table(), "precision");
  EXPECT_EQ(full.key(), "mode");
  EXPECT_EQ(full.value(), "\"16-mixed\"");
  EXPECT_EQ((KeyAlias{"report_to", "", "note"}).key(), "");
}

TEST(Aliases, OfAKeySayItsNameAndTheLineToWrite) {
  expect_message(refusal_of("[optimizer]\nlearning_rate = 2e-5"), "input.toml:3",
                 {"[optimizer]", "'learning_rate'", "optimizer.lr", "2e-5",
                  "\n    learning_rate = 2e-5\n    ^~~~~~~~~~~~~"});
  expect_message(first_line(refusal_of("[parallel]\nLearning-Rate = 2e-5")), "input.toml:3",
                 {"[parallel]", "'Learning-Rate'", "optimizer.lr", "2e-5", "[optimizer]"});
  expect_message(first_line(refusal("learning_rate = 2e-5\nmodel.path = \"m\"")), "input.toml:1",
                 {"'learning_rate'", "optimizer.lr", "2e-5", "[optimizer]"});
  expect_message(
      refusal("model.path = \"m\"", {"parallel.learning_rate=2e-5"}), "command line",
      {"parallel.learning_rate=2e-5", "[parallel]", "'learning_rate'", "optimizer.lr=2e-5"});
}

TEST(Aliases, RepeatAValueOnlyIfOurKeyTakesIt) {
  expect_message(first_line(refusal_of("optimizer.learning_rate = \"fast\"")), "input.toml:2",
                 {"[optimizer]", "'learning_rate'", "optimizer.lr", "'lr'"});
  expect_message(first_line(refusal_of("parallel.fsdp = \"full_shard\"")), "input.toml:2",
                 {"[parallel]", "'fsdp'", "parallel.sharding", "'sharding'"});
  expect_message(first_line(refusal_of("parallel.fsdp = \"NO_SHARD\"")), "input.toml:2",
                 {"[parallel]", "'fsdp'", "parallel.sharding", "\"NO_SHARD\""});
  expect_message(first_line(refusal_of("parallel.strategy = \"ZeRO-3\"")), "input.toml:2",
                 {"[parallel]", "'strategy'", "parallel.sharding", "\"FULL_SHARD\""});
}

TEST(Aliases, WithoutAKeyOfOursSayHowItIsDone) {
  expect_message(
      first_line(refusal("[model]\npath = \"m\"\nreport_to = \"wandb\"")), "input.toml:3",
      {"[model]", "'report_to'", "train.output", "metrics.jsonl", "metrics.tensorboard"});
  expect_message(
      first_line(refusal_of("parallel.pipeline_parallel_degree = 8")), "input.toml:2",
      {"[parallel]", "'pipeline_parallel_degree'", "parallel.tp", "parallel.cp", "'sharding'"});
  expect_message(first_line(refusal_of("parallel.tensor_parallel_size = 8")), "input.toml:2",
                 {"[parallel]", "'tensor_parallel_size'", "parallel.tp", "8"});
}

TEST(Aliases, AreNotFollowedToKeysThatTheDeckDoesNotHave) {
  expect_message(first_line(refusal_of("parallel.gradient_checkpointing = true")), "input.toml:2",
                 {"[parallel]", "'gradient_checkpointing'"});
}

TEST(Aliases, OfOneTableDoNotHoldInAnother) {
  expect_message(first_line(refusal("[model]\npath = \"m\"\nname = \"llama\"")), "input.toml:3",
                 {"[model]", "'name'", "model.path", "\"llama\""});
  expect_message(first_line(refusal_of("optimizer.name = \"sgd\"")), "input.toml:2",
                 {"[optimizer]", "'name'", "beta2", "warmup_steps"});
}

TEST(Aliases, OfATableTranslateItsKeys) {
  expect_message(refusal_of("[fsdp]\nlearning_rate = 1\ntp = 2\nx = 1"), "input.toml:2",
                 {"[fsdp]", "[parallel]", "learning_rate", "optimizer.lr", "parallel.tp",
                  "\n    [fsdp]\n    ^~~~~~"});
  expect_message(first_line(refusal_of("[things]\nlr = 1")), "input.toml:2",
                 {"[things]", "optimizer.lr"});
  expect_message(first_line(refusal_of("[parallel.lr_scheduler]\ntype = 1")), "input.toml:2",
                 {"[parallel]", "'lr_scheduler'", "[optimizer]"});
  expect_message(first_line(refusal_of("[[fsdp]]\ntp = 1")), "input.toml:2", {"[parallel]"});
}

TEST(Aliases, OfAValueAreSuggested) {
  expect_message(refusal_of("parallel.sharding = \"zero2\""), "", {"\"SHARD_GRAD_OP\""});
  expect_message(refusal_of("parallel.sharding = 3"), "", {"\"FULL_SHARD\""});
  expect_message(refusal_of("parallel.sharding = true"), "",
                 {"\"FULL_SHARD\"", "\"SHARD_GRAD_OP\"", "\"NO_SHARD\""});
}

TEST(Aliases, HelpAnOverrideWithoutATable) {
  const auto message = [](const std::string& argument) {
    return refusal("model.path = \"m\"", {argument}, core::ErrorKind::command_line);
  };
  expect_message(message("learning_rate=1e-5"), "command line",
                 {"learning_rate=1e-5", "'.'", "'='", "optimizer.lr=1e-5"});
  expect_message(message("fp16=true"), "", {"precision.mode="});
  expect_message(message("report_to=none"), "", {"table.key=value"});
}

TEST(ForeignDecks, AreCalledWhatTheyAre) {
  expect_message(refusal("# Mine\n\nbase_model: meta/llama\nlearning_rate: 2e-5\nzoo: 1\n"),
                 "input.toml:3",
                 {"YAML", "[train]", "`finetune import`", "inputs/", "`finetune --reference`",
                  "base_model", "model.path", "learning_rate", "optimizer.lr", "meta/llama"});
  for (const char* yaml : {"---\na: 1", "- a", "a:\n  b: 1", "a-b.c:\t1", "%YAML 1.2"})
    expect_message(refusal(yaml), "", {"YAML"});
  for (const char* json : {"{\"a\": 1}", "\n  {", "[{\"a\": 1}]"})
    expect_message(refusal(json), "", {"JSON"});
  expect_words(refusal("#!/bin/bash\n#SBATCH -N 2\n"));
}

TEST(ForeignDecks, AreNoneThatMayBeToml) {
  for (const char* toml : {"a:b", "\"a: 1\" = 2", "# a: 1\nmodel.path = \"m\"", "-a = 1", ""})
    EXPECT_EQ(refusal(toml).find("this is"), refusal(toml).find("this is neither")) << toml;
}

}  // namespace
}  // namespace finetune::deck::aliases_test
