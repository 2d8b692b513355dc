// SPDX-License-Identifier: Apache-2.0
#include "unit/deck/sample.hpp"

namespace finetune::deck::overrides_test {
namespace {

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
  EXPECT_EQ(message("optimizer.lr=fast"),
            "command line: optimizer.lr=fast: optimizer.lr = \"fast\" is a string "
            "(a number is expected). Write a number, for example lr = 1e-05.");
  EXPECT_EQ(message("parallel.tp="),
            "command line: parallel.tp=: parallel.tp = \"\" is a string "
            "(an integer is expected). Write an integer, for example tp = 1.");
  EXPECT_EQ(message("parallel.shardin=NO_SHARD"),
            "command line: parallel.shardin=NO_SHARD: [parallel] has no key 'shardin' "
            "(it would be ignored). Did you mean 'sharding'?");
  EXPECT_EQ(message("paralel.tp=2"),
            "command line: paralel.tp=2: there is no table [paralel] "
            "(what is in it would be ignored). Did you mean [parallel]?");
  EXPECT_EQ(message("model.init=randm"),
            "command line: model.init=randm: model.init = \"randm\" is not one of its values "
            "(they are \"pretrained\", \"random\"). Did you mean \"random\"?");
}

TEST(DeckOverrides, OfAnotherFormAreErrorsOfTheCommandLine) {
  const auto message = [](const std::string& argument) {
    return refusal("model.path = \"m\"", {argument}, core::ErrorKind::command_line);
  };
  EXPECT_EQ(message("model.path"),
            "command line: model.path: there is no '=' in it (an override gives a key its value). "
            "Write table.key=value, for example model.path=some/folder or optimizer.lr=1e-5.");
  EXPECT_NE(message("path=x").find("there is no '.' before '='"), std::string::npos);
  EXPECT_NE(message("path=a.b").find("there is no '.' before '='"), std::string::npos);
  for (const char* argument : {"a.b.c=1", ".b=1", "a.=1", "a b.c=1", "\"a\".b=1", "=", ""})
    EXPECT_NE(message(argument), "") << argument;
}

TEST(DeckOverrides, WithBytesThatCannotBePrintedAreRefusedWithoutRepeatingThem) {
  for (const char* argument : {"model.path=\xff", "model.path=\x1b[2J"}) {
    const std::string message = refusal("", {argument}, core::ErrorKind::command_line);
    EXPECT_EQ(message.rfind("command line: ", 0), 0u);
    EXPECT_EQ(message.find('\xff'), std::string::npos);
    EXPECT_EQ(message.find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace finetune::deck::overrides_test
