// SPDX-License-Identifier: Apache-2.0
#include "support/messages.hpp"
#include "unit/deck/sample.hpp"

namespace finetune::deck::unknown_test {
namespace {

using finetune::tests::expect_message;

std::string first_line(const std::string& lines) {
  const std::string message = refusal_of(lines);
  return message.substr(0, message.find('\n'));
}

TEST(DeckUnknown, AKeyWithASlipOfTheKeyboardGetsASuggestionAndACaretUnderTheKey) {
  expect_message(
      refusal_of("[parallel]\n  shardng = \"NO_SHARD\""), "input.toml:3",
      {"[parallel]", "'shardng'", "'sharding'", "\n      shardng = \"NO_SHARD\"\n      ^~~~~~~"});
}

TEST(DeckUnknown, TheCaretFindsDottedAndQuotedKeysAndThoseOfInlineTables) {
  EXPECT_NE(refusal_of("parallel.tpp = 2").find("    parallel.tpp = 2\n             ^~~"),
            std::string::npos);
  expect_message(refusal_of("[parallel]\n\"t p\" = 2"), "", {"\"t p\"", "2"});
  EXPECT_NE(refusal_of("parallel = {tp = 1, tpp=2}")
                .find("    parallel = {tp = 1, tpp=2}\n                        ^~~"),
            std::string::npos);
}

TEST(DeckUnknown, AKeyOfAnotherTableIsSentThere) {
  expect_message(first_line("parallel.lr = 1e-4"), "input.toml:2",
                 {"'lr'", "[optimizer]", "[parallel]"});
  expect_message(first_line("parallel.warmup_step = 1"), "input.toml:2",
                 {"[parallel]", "'warmup_step'", "'warmup_steps'", "[optimizer]"});
}

TEST(DeckUnknown, AKeyNearToNothingGetsTheListOfItsTable) {
  expect_message(first_line("parallel.elephant = 1"), "input.toml:2", {"[parallel]", "'elephant'"});
}

TEST(DeckUnknown, ATableIsReportedOnceWithASuggestionOrTheListOfTables) {
  expect_message(refusal_of("[Paralel]\ntp = 2\nx = 1\n"), "input.toml:2",
                 {"[Paralel]", "[parallel]", "\n    [Paralel]\n    ^~~~~~~~~"});
  expect_message(first_line("[zoo]"), "input.toml:2", {"[zoo]"});
}

TEST(DeckUnknown, AKeyOutsideEveryTableIsSentToItsTable) {
  expect_message(refusal("lr = 1e-4\nmodel.path = \"m\""), "input.toml:1",
                 {"'lr'", "[optimizer]", "\n    lr = 1e-4\n    ^~"});
  EXPECT_NE(refusal("zoo = 1\nmodel.path = \"m\"").find("`finetune --reference`"),
            std::string::npos);
}

TEST(DeckUnknown, AValueWhereATableIsExpectedIsRefused) {
  expect_message(first_line("parallel = \"x\""), "input.toml:2", {"\"x\"", "[parallel]"});
}

TEST(DeckUnknown, TablesInTablesAndArraysOfTablesAreRefused) {
  expect_message(first_line("[parallel.deep]\ntp = 1"), "input.toml:2", {"[parallel]", "'deep'"});
  expect_message(first_line("[parallel]\noptimizer.lr = 1"), "input.toml:3",
                 {"[parallel]", "'optimizer'", "[optimizer]"});
  expect_message(first_line("[[parallel]]\ntp = 1"), "input.toml:2", {"[parallel]"});
  expect_message(first_line("[[parallel.x]]\ntp = 1"), "", {"'x'"});
}

}  // namespace
}  // namespace finetune::deck::unknown_test
