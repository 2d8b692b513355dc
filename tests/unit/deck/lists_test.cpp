// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "core/error.hpp"
#include "support/messages.hpp"
#include "unit/deck/sample.hpp"

namespace finetune::deck::lists_test {
namespace {

using finetune::tests::expect_message;
using finetune::tests::expect_words;

struct Lists {
  std::vector<std::string> paths;
  std::vector<std::string> formats = {"a"};
  std::vector<double> weights;

  void bind(Deck& deck) {
    Table table = deck.table("data", "Data.");
    table.texts({"path", Restart::free, "Files.", "", true}, paths);
    table.texts({"format", Restart::fixed, "What they hold."}, formats, {"a", "b"});
    table.reals({"weights", Restart::fixed, "Their shares."}, weights, {.above = 0.0});
  }
};

Lists lists(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Deck deck(text, "input.toml", overrides);
  Lists read;
  read.bind(deck);
  deck.finish();
  return read;
}

std::string refusal_of_lists(const std::string& text,
                             const std::vector<std::string>& overrides = {}) {
  try {
    lists(text, overrides);
  } catch (const core::Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

using Texts = std::vector<std::string>;
using Numbers = std::vector<double>;

TEST(DeckLists, AStringAloneIsAListOfOne) {
  const Lists read = lists("[data]\npath = \"x\"\n");
  EXPECT_EQ(read.paths, Texts({"x"}));
  EXPECT_EQ(read.formats, Texts({"a"}));
  EXPECT_TRUE(read.weights.empty());
}

TEST(DeckLists, ArraysMayGoOverSeveralLinesWithComments) {
  const Lists read = lists(
      "[data]\npath = [\n  \"x\",  # the first\n  \"y\",\n]\nformat = [\"a\", \"b\"]\n"
      "weights = [1, 0.5]\n");
  EXPECT_EQ(read.paths, Texts({"x", "y"}));
  EXPECT_EQ(read.formats, Texts({"a", "b"}));
  EXPECT_EQ(read.weights, Numbers({1, 0.5}));
}

TEST(DeckLists, OverridesNeedNoQuotes) {
  EXPECT_EQ(lists("", {"data.path=[a/b.json, c d]"}).paths, Texts({"a/b.json", "c d"}));
  EXPECT_EQ(lists("", {"data.path=[\"a,b\",\"c\"]"}).paths, Texts({"a,b", "c"}));
  EXPECT_EQ(lists("", {"data.path=a,b"}).paths, Texts({"a,b"}));
  EXPECT_EQ(lists("", {"data.path=7"}).paths, Texts({"7"}));
  EXPECT_EQ(lists("", {"data.path=x", "data.weights=[2,3]"}).weights, Numbers({2, 3}));
}

TEST(DeckLists, AListOfAnEmptyTextIsNoEmptyList) {
  const std::string problem = "data.path names \"\" (an empty text stands for nothing)";
  EXPECT_NE(refusal_of_lists("[data]\npath = [\"\"]\n").find(problem), std::string::npos);
  expect_message(refusal_of_lists("[data]\npath = \"\"\n"), "", {"data.path"});
}

TEST(DeckLists, AnElementOfAnotherTypeIsPointedAt) {
  expect_message(refusal_of_lists("[data]\npath = [\"x\", 7]\n"), "input.toml:2",
                 {"data.path", "7", "\"...\"", "\n    path = [\"x\", 7]\n                 ^"});
  expect_message(refusal_of_lists("[data]\npath = \"x\"\nformat = [\"a\",\n  \"c\"]\n"),
                 "input.toml:4",
                 {"data.format", "\"c\"", "\"a\"", "\"b\"", "\n      \"c\"]\n      ^~~"});
  expect_message(
      refusal_of_lists("[data]\npath = \"x\"\nweights = [1.0, -2.0]\n"), "input.toml:3",
      {"data.weights", "-2.0", "0.0", "\n    weights = [1.0, -2.0]\n                    ^~~~"});
  expect_words(refusal_of_lists("[data]\npath = \"x\"\nweights = 3\n"));
}

TEST(DeckLists, ARequiredListIsNotEmpty) {
  expect_message(refusal_of_lists("[data]\npath = []\n"), "", {"data.path"});
  expect_message(refusal_of_lists(""), "", {"data.path"});
}

TEST(DeckLists, TheResolvedDeckReadsBackToTheSameLists) {
  Deck deck("[data]\npath = [\"x\", \"y\\\"z\"]\nweights = [1, 0.1]\n", "input.toml", {});
  Lists read;
  read.bind(deck);
  deck.finish();
  const std::string resolved = deck.resolved();
  EXPECT_NE(resolved.find("path = [\"x\", \"y\\\"z\"]\nformat = \"a\"\nweights = [1.0, 0.1]\n"),
            std::string::npos)
      << resolved;
  EXPECT_EQ(lists(resolved).paths, read.paths);
  EXPECT_EQ(lists(resolved).weights, read.weights);
}

using Named = std::map<std::string, std::string>;

Named named(const std::string& text, const std::vector<std::string>& overrides = {},
            std::string* resolved = nullptr) {
  Deck deck(text, "input.toml", overrides);
  Named values;
  deck.table("data", "Data.")
      .named_texts({"columns", Restart::fixed, "Columns."}, values,
                   {"input", "instruction", "output"});
  deck.finish();
  if (resolved != nullptr) *resolved = deck.resolved();
  return values;
}

std::string refusal_of_named(const std::string& text) {
  try {
    named(text);
  } catch (const core::Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(DeckNamedTexts, MayBeWrittenInlineAsATableOrByDottedKeys) {
  const Named expected = {{"instruction", "a \"b\""}, {"output", "c"}};
  for (const char* text : {"[data]\ncolumns = { instruction = \"a \\\"b\\\"\", output = \"c\" }\n",
                           "[data]\n[data.columns]\noutput = \"c\"\ninstruction = 'a \"b\"'\n",
                           "[data]\ncolumns.output = \"c\"\ncolumns.instruction = 'a \"b\"'\n"})
    EXPECT_EQ(named(text), expected) << text;
  EXPECT_EQ(named("", {"data.columns={instruction='a \"b\"', output=\"c\"}"}), expected);
  EXPECT_EQ(named("[data]\ncolumns = {}\n"), Named());
}

TEST(DeckNamedTexts, ReadBackFromTheResolvedDeck) {
  std::string resolved;
  const Named values =
      named("[data]\ncolumns = { output = \"c\\n\", instruction = \"é\" }\n", {}, &resolved);
  EXPECT_NE(resolved.find("columns = { instruction = \"é\", output = \"c\\n\" }\n"),
            std::string::npos)
      << resolved;
  EXPECT_EQ(named(resolved), values);
  named("", {}, &resolved);
  EXPECT_NE(resolved.find("columns = {}\n"), std::string::npos) << resolved;
}

TEST(DeckNamedTexts, PointAtTheEntryThatIsWrong) {
  expect_message(refusal_of_named("[data]\ncolumns = { output = \"a\", instuction = \"q\" }\n"),
                 "input.toml:2",
                 {"data.columns", "'instuction'", "'instruction'",
                  "\n    columns = { output = \"a\", instuction = \"q\" }\n                        "
                  "      ^~~~~~~~~~"});
  expect_message(refusal_of_named("[data]\ncolumns = { output = 7 }\n"), "input.toml:2",
                 {"data.columns.output", "\"7\"",
                  "\n    columns = { output = 7 }\n                         ^"});
  expect_message(refusal_of_named("[data.columns]\noutput = \"\"\n"), "", {"data.columns.output"});
  expect_message(refusal_of_named("[data]\ncolumns = \"question\"\n"), "", {"NAME", "\"...\""});
}

}  // namespace
}  // namespace finetune::deck::lists_test
