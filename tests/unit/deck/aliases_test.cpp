// SPDX-License-Identifier: Apache-2.0
// Keys, tables and values as other programs call them. That each row of the tables leads to a key
// that there is: alias_targets_test.cpp.
#include "deck/aliases.hpp"

#include <set>

#include "unit/deck/sample.hpp"

namespace finetune::deck::aliases_test {
namespace {

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
  EXPECT_EQ(refusal_of("[optimizer]\nlearning_rate = 2e-5"),
            "input.toml:3: [optimizer] has no key 'learning_rate' (here it is optimizer.lr). "
            "Write lr = 2e-5 instead.\n"
            "    learning_rate = 2e-5\n"
            "    ^~~~~~~~~~~~~");
  EXPECT_EQ(first_line(refusal_of("[parallel]\nLearning-Rate = 2e-5")),
            "input.toml:3: [parallel] has no key 'Learning-Rate' (here it is optimizer.lr). "
            "Write lr = 2e-5 below [optimizer].");
  EXPECT_EQ(first_line(refusal("learning_rate = 2e-5\nmodel.path = \"m\"")),
            "input.toml:1: key 'learning_rate' stands outside every table (here it is "
            "optimizer.lr). Write lr = 2e-5 below [optimizer].");
  EXPECT_EQ(refusal("model.path = \"m\"", {"parallel.learning_rate=2e-5"}),
            "command line: parallel.learning_rate=2e-5: [parallel] has no key 'learning_rate' "
            "(here it is optimizer.lr). Write optimizer.lr=2e-5.");
}

TEST(Aliases, RepeatAValueOnlyIfOurKeyTakesIt) {
  EXPECT_EQ(first_line(refusal_of("optimizer.learning_rate = \"fast\"")),
            "input.toml:2: [optimizer] has no key 'learning_rate' (here it is optimizer.lr). "
            "Write 'lr' instead.");
  EXPECT_EQ(first_line(refusal_of("parallel.fsdp = \"full_shard\"")),
            "input.toml:2: [parallel] has no key 'fsdp' (here it is parallel.sharding). "
            "Write 'sharding' instead.");
  EXPECT_EQ(first_line(refusal_of("parallel.fsdp = \"NO_SHARD\"")),
            "input.toml:2: [parallel] has no key 'fsdp' (here it is parallel.sharding). "
            "Write sharding = \"NO_SHARD\" instead.");
  EXPECT_EQ(first_line(refusal_of("parallel.strategy = \"ZeRO-3\"")),
            "input.toml:2: [parallel] has no key 'strategy' (here it is parallel.sharding). "
            "Write sharding = \"FULL_SHARD\" instead.");
}

TEST(Aliases, WithoutAKeyOfOursSayHowItIsDone) {
  EXPECT_EQ(first_line(refusal("[model]\npath = \"m\"\nreport_to = \"wandb\"")),
            "input.toml:3: [model] has no key 'report_to' (train.output has metrics.jsonl with one "
            "line per step, and event files for TensorBoard (metrics.tensorboard)). Remove it.");
  EXPECT_EQ(first_line(refusal_of("parallel.pipeline_parallel_degree = 8")),
            "input.toml:2: [parallel] has no key 'pipeline_parallel_degree' (layers are not dealt "
            "out: sharding, parallel.tp and parallel.cp serve instead). Write 'sharding' instead.");
  EXPECT_EQ(first_line(refusal_of("parallel.tensor_parallel_size = 8")),
            "input.toml:2: [parallel] has no key 'tensor_parallel_size' (here it is parallel.tp). "
            "Write tp = 8 instead.");
}

TEST(Aliases, AreNotFollowedToKeysThatTheDeckDoesNotHave) {
  EXPECT_EQ(first_line(refusal_of("parallel.gradient_checkpointing = true")),
            "input.toml:2: [parallel] has no key 'gradient_checkpointing' (it would be ignored). "
            "The keys of [parallel] are sharding, tp.");
}

TEST(Aliases, OfOneTableDoNotHoldInAnother) {
  EXPECT_EQ(first_line(refusal("[model]\npath = \"m\"\nname = \"llama\"")),
            "input.toml:3: [model] has no key 'name' (here it is model.path). "
            "Write path = \"llama\" instead.");
  EXPECT_EQ(first_line(refusal_of("optimizer.name = \"sgd\"")),
            "input.toml:2: [optimizer] has no key 'name' (it would be ignored). "
            "The keys of [optimizer] are lr, beta2, warmup_steps, fused.");
}

TEST(Aliases, OfATableTranslateItsKeys) {
  EXPECT_EQ(refusal_of("[fsdp]\nlearning_rate = 1\ntp = 2\nx = 1"),
            "input.toml:2: there is no table [fsdp] (what is in it would be ignored). "
            "Here it is [parallel]. Of its keys, learning_rate is optimizer.lr, tp is parallel.tp."
            "\n    [fsdp]\n    ^~~~~~");
  EXPECT_EQ(first_line(refusal_of("[things]\nlr = 1")),
            "input.toml:2: there is no table [things] (what is in it would be ignored). "
            "The tables are model, parallel, optimizer. Of its keys, lr is optimizer.lr.");
  EXPECT_EQ(first_line(refusal_of("[parallel.lr_scheduler]\ntype = 1")),
            "input.toml:2: [parallel] holds a table 'lr_scheduler' (a deck has tables of keys and "
            "nothing deeper). Write [optimizer] on a line of its own.");
  EXPECT_EQ(first_line(refusal_of("[[fsdp]]\ntp = 1")),
            "input.toml:2: fsdp is an array of tables (a table is expected). "
            "Write [parallel] once, and its keys below it.");
}

TEST(Aliases, OfAValueAreSuggested) {
  EXPECT_NE(refusal_of("parallel.sharding = \"zero2\"").find("Did you mean \"SHARD_GRAD_OP\"?"),
            std::string::npos);
  EXPECT_NE(refusal_of("parallel.sharding = 3").find("Write sharding = \"FULL_SHARD\"."),
            std::string::npos);
  EXPECT_NE(refusal_of("parallel.sharding = true")
                .find("Write one of \"FULL_SHARD\", \"SHARD_GRAD_OP\", \"NO_SHARD\"."),
            std::string::npos)
      << "AUTO is none of this table's";
}

TEST(Aliases, HelpAnOverrideWithoutATable) {
  const auto message = [](const std::string& argument) {
    return refusal("model.path = \"m\"", {argument}, core::ErrorKind::command_line);
  };
  EXPECT_EQ(message("learning_rate=1e-5"),
            "command line: learning_rate=1e-5: there is no '.' before '=' (every key belongs to a "
            "table). Write optimizer.lr=1e-5.");
  EXPECT_NE(message("fp16=true").find("Write precision.mode=..."), std::string::npos);
  EXPECT_NE(message("report_to=none").find("Write table.key=value"), std::string::npos);
}

TEST(ForeignDecks, AreCalledWhatTheyAre) {
  EXPECT_EQ(
      refusal("# Mine\n\nbase_model: meta/llama\nlearning_rate: 2e-5\nzoo: 1\n"),
      "input.toml:3: this is YAML (a deck is TOML: tables as [train], and key = value below "
      "them). Write it as a deck, or have `finetune import` do that: inputs/ has some to begin "
      "with, `finetune --reference` "
      "lists every key. Of its keys, base_model is model.path, learning_rate is "
      "optimizer.lr.\n"
      "    base_model: meta/llama");
  for (const char* yaml : {"---\na: 1", "- a", "a:\n  b: 1", "a-b.c:\t1", "%YAML 1.2"})
    EXPECT_NE(refusal(yaml).find("this is YAML"), std::string::npos) << yaml;
  for (const char* json : {"{\"a\": 1}", "\n  {", "[{\"a\": 1}]"})
    EXPECT_NE(refusal(json).find("this is JSON"), std::string::npos) << json;
  EXPECT_NE(refusal("#!/bin/bash\n#SBATCH -N 2\n").find("this is a script"), std::string::npos);
}

TEST(ForeignDecks, AreNoneThatMayBeToml) {
  for (const char* toml : {"a:b", "\"a: 1\" = 2", "# a: 1\nmodel.path = \"m\"", "-a = 1", ""})
    EXPECT_EQ(refusal(toml).find("this is"), refusal(toml).find("this is neither")) << toml;
}

}  // namespace
}  // namespace finetune::deck::aliases_test
