// SPDX-License-Identifier: Apache-2.0
#include "unit/deck/sample.hpp"

namespace finetune::deck::unknown_test {
namespace {

std::string first_line(const std::string& lines) {
  const std::string message = refusal_of(lines);
  return message.substr(0, message.find('\n'));
}

TEST(DeckUnknown, AKeyWithASlipOfTheKeyboardGetsASuggestionAndACaretUnderTheKey) {
  EXPECT_EQ(refusal_of("[parallel]\n  shardng = \"NO_SHARD\""),
            "input.toml:3: [parallel] has no key 'shardng' (it would be ignored). "
            "Did you mean 'sharding'?\n"
            "      shardng = \"NO_SHARD\"\n"
            "      ^~~~~~~");
}

TEST(DeckUnknown, TheCaretFindsDottedAndQuotedKeysAndThoseOfInlineTables) {
  EXPECT_NE(refusal_of("parallel.tpp = 2").find("    parallel.tpp = 2\n             ^~~"),
            std::string::npos);
  EXPECT_NE(refusal_of("[parallel]\n\"t p\" = 2").find("    \"t p\" = 2\n    ^~~~~"),
            std::string::npos);
  EXPECT_NE(refusal_of("parallel = {tp = 1, tpp=2}")
                .find("    parallel = {tp = 1, tpp=2}\n                        ^~~"),
            std::string::npos);
}

TEST(DeckUnknown, AKeyOfAnotherTableIsSentThere) {
  EXPECT_EQ(first_line("parallel.lr = 1e-4"),
            "input.toml:2: key 'lr' belongs in [optimizer] ([parallel] has no such key). "
            "Move it there.");
  EXPECT_EQ(first_line("parallel.warmup_step = 1"),
            "input.toml:2: [parallel] has no key 'warmup_step' (it would be ignored). "
            "Did you mean 'warmup_steps' in [optimizer]?");
}

TEST(DeckUnknown, AKeyNearToNothingGetsTheListOfItsTable) {
  EXPECT_EQ(first_line("parallel.elephant = 1"),
            "input.toml:2: [parallel] has no key 'elephant' (it would be ignored). "
            "The keys of [parallel] are sharding, tp.");
}

TEST(DeckUnknown, ATableIsReportedOnceWithASuggestionOrTheListOfTables) {
  EXPECT_EQ(refusal_of("[Paralel]\ntp = 2\nx = 1\n"),
            "input.toml:2: there is no table [Paralel] (what is in it would be ignored). "
            "Did you mean [parallel]?\n"
            "    [Paralel]\n"
            "    ^~~~~~~~~");
  EXPECT_EQ(first_line("[zoo]"),
            "input.toml:2: there is no table [zoo] (what is in it would be ignored). "
            "The tables are model, parallel, optimizer.");
}

TEST(DeckUnknown, AKeyOutsideEveryTableIsSentToItsTable) {
  EXPECT_EQ(refusal("lr = 1e-4\nmodel.path = \"m\""),
            "input.toml:1: key 'lr' stands outside every table (each key belongs to a table). "
            "Put it below [optimizer].\n"
            "    lr = 1e-4\n"
            "    ^~");
  EXPECT_NE(refusal("zoo = 1\nmodel.path = \"m\"").find("`finetune --reference`"),
            std::string::npos);
}

TEST(DeckUnknown, AValueWhereATableIsExpectedIsRefused) {
  EXPECT_EQ(first_line("parallel = \"x\""),
            "input.toml:2: parallel = \"x\" is a string (a table is expected). "
            "Write [parallel] once, and its keys below it.");
}

TEST(DeckUnknown, TablesInTablesAndArraysOfTablesAreRefused) {
  EXPECT_EQ(first_line("[parallel.deep]\ntp = 1"),
            "input.toml:2: [parallel] holds a table 'deep' (a deck has tables of keys and nothing "
            "deeper). Write its keys below a table of the deck, such as [parallel].");
  EXPECT_EQ(first_line("[parallel]\noptimizer.lr = 1"),
            "input.toml:3: [parallel] holds a table 'optimizer' (a deck has tables of keys and "
            "nothing deeper). Write [optimizer] on a line of its own.");
  EXPECT_EQ(first_line("[[parallel]]\ntp = 1"),
            "input.toml:2: parallel is an array of tables (a table is expected). "
            "Write [parallel] once, and its keys below it.");
  EXPECT_NE(first_line("[[parallel.x]]\ntp = 1").find("holds an array of tables 'x'"),
            std::string::npos);
}

}  // namespace
}  // namespace finetune::deck::unknown_test
