// SPDX-License-Identifier: Apache-2.0
#include "support/messages.hpp"
#include "unit/deck/sample.hpp"

namespace finetune::deck::overrides_test {
namespace {

using finetune::tests::expect_message;

const std::string deck_text = "[model]\npath = \"m\"\n[optimizer]\nlr = \"fast\"\n";

TEST(DeckOverrides, TakeThePlaceOfTheDecksValuesAndTheLastOneWins) {
  const Sample sample = read(deck_text, {"optimizer.lr=1", "optimizer.lr = 3e-4", "parallel.tp=4",
                                         "optimizer.fused=true", "parallel.sharding=NO_SHARD"});
  EXPECT_EQ(sample.lr, 3e-4);
  EXPECT_EQ(sample.tp, 4);
  EXPECT_TRUE(sample.fused);
  EXPECT_EQ(sample.sharding, "NO_SHARD");
}

TEST(DeckOverrides, TextNeedsNoQuotesWhateverItLooksLike) {
  const auto path = [](const std::string& value) { return read("", {"model.path=" + value}).path; };
  EXPECT_EQ(path("some/folder"), "some/folder");
  EXPECT_EQ(path("\"quoted\""), "quoted");
  EXPECT_EQ(path("'quoted'"), "quoted");
  EXPECT_EQ(path("123"), "123");
  EXPECT_EQ(path("true"), "true");
  EXPECT_EQ(path("2024-01-01"), "2024-01-01");
  EXPECT_EQ(path("a=b"), "a=b");
  EXPECT_EQ(path("1 # one"), "1 # one");
  EXPECT_EQ(path("\"a\" # b"), "\"a\" # b");
  EXPECT_EQ(path("1\nw = 2"), "1\nw = 2");
  EXPECT_EQ(path("\"unclosed"), "\"unclosed");
  EXPECT_EQ(path(""), "");
}

TEST(DeckOverrides, AreCheckedLikeKeysOfTheDeck) {
  const auto message = [](const std::string& argument) {
    return refusal("model.path = \"m\"", {argument});
  };
  expect_message(message("optimizer.lr=fast"), "command line",
                 {"optimizer.lr=fast", "\"fast\"", "1e-05"});
  expect_message(message("parallel.tp="), "command line", {"parallel.tp=", "\"\"", "1"});
  expect_message(message("parallel.shardin=NO_SHARD"), "command line",
                 {"parallel.shardin=NO_SHARD", "[parallel]", "'shardin'", "'sharding'"});
  expect_message(message("paralel.tp=2"), "command line",
                 {"paralel.tp=2", "[paralel]", "[parallel]"});
  expect_message(message("model.init=randm"), "command line",
                 {"model.init=randm", "\"randm\"", "\"pretrained\"", "\"random\""});
}

TEST(DeckOverrides, OfAnotherFormAreErrorsOfTheCommandLine) {
  const auto message = [](const std::string& argument) {
    return refusal("model.path = \"m\"", {argument}, core::ErrorKind::command_line);
  };
  expect_message(message("model.path"), "command line",
                 {"'='", "table.key=value", "model.path=some/folder", "optimizer.lr=1e-5"});
  expect_message(message("path=x"), "", {"'.'", "'='"});
  expect_message(message("path=a.b"), "", {"'.'", "'='"});
  for (const char* argument : {"a.b.c=1", ".b=1", "a.=1", "a b.c=1", "\"a\".b=1", "=", ""})
    EXPECT_NE(message(argument), "") << argument;
}

TEST(DeckOverrides, WithBytesThatCannotBePrintedAreRefusedWithoutRepeatingThem) {
  for (const char* argument : {"model.path=\xff", "model.path=\x1b[2J"}) {
    const std::string message = refusal("", {argument}, core::ErrorKind::command_line);
    expect_message(message, "command line");
    EXPECT_EQ(message.find('\xff'), std::string::npos);
    EXPECT_EQ(message.find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace finetune::deck::overrides_test
