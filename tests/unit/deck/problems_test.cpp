// SPDX-License-Identifier: Apache-2.0
#include "support/messages.hpp"
#include "unit/deck/sample.hpp"

namespace finetune::deck::problems_test {
namespace {

using finetune::tests::expect_message;
using finetune::tests::expect_words;

TEST(DeckProblems, AWrongTypeSaysWhatWasFoundAndWhatIsExpectedAndPointsAtTheValue) {
  expect_message(
      refusal("[model]\npath = \"m\"\n[optimizer]\n  lr = \"fast\"  # quick\n"), "input.toml:4",
      {"optimizer.lr", "\"fast\"", "1e-05", "\n      lr = \"fast\"  # quick\n           ^~~~~~"});
}

TEST(DeckProblems, EveryKindOfValueIsRefusedWhereAnotherTypeIsExpected) {
  const auto starts = [](const std::string& line, const std::string& begin) {
    const std::string message = refusal_of(line);
    EXPECT_EQ(message.substr(0, message.find('\n')), "input.toml:2: " + begin);
  };
  starts("parallel.tp = 2.5",
         "parallel.tp = 2.5 is a real number (an integer is expected). "
         "Write an integer, for example tp = 1.");
  starts("parallel.tp = 2e1",
         "parallel.tp = 2e1 is a real number (an integer is expected). Write tp = 20.");
  starts("parallel.tp = \"2\"",
         "parallel.tp = \"2\" is a string (an integer is expected). Remove the quotes: tp = 2.");
  starts("optimizer.lr = \"1e-4\"",
         "optimizer.lr = \"1e-4\" is a string (a number is expected). "
         "Remove the quotes: lr = 1e-4.");
  starts("optimizer.fused = \"true\"",
         "optimizer.fused = \"true\" is a string (true or false is expected). "
         "Write true or false, without quotes.");
  starts("model.init = 3",
         "model.init = 3 is an integer (a string is expected). "
         "Write one of \"pretrained\", \"random\".");
  starts("model.init = 1979-05-27",
         "model.init = 1979-05-27 is a date or time (a string is expected). "
         "Write one of \"pretrained\", \"random\".");
  starts("optimizer.lr = [1, 2]",
         "optimizer.lr = [1, 2] is an array (a number is expected). "
         "Write a number, for example lr = 1e-05.");
  starts("optimizer.lr = {a = 1}",
         "optimizer.lr = {a = 1} is a table (a number is expected). "
         "Write a number, for example lr = 1e-05.");
}

TEST(DeckProblems, LimitsOfARangeAreInsideOrOutsideAsTheRangeSays) {
  EXPECT_EQ(refusal_of("parallel.tp = 64"), "");
  expect_message(refusal_of("parallel.tp = 65"), "input.toml:2",
                 {"parallel.tp", "65", "1", "64", "\n    parallel.tp = 65\n                  ^~"});
  EXPECT_NE(refusal_of("parallel.tp = 0"), "");
  EXPECT_EQ(refusal_of("optimizer.beta2 = 0"), "");
  expect_message(refusal_of("optimizer.lr = 0.0"), "", {"0.0"});
}

TEST(DeckProblems, NumbersThatDoNotFitAreRefusedAndNotCut) {
  for (const char* value : {"9223372036854775808", "-9223372036854775809",
                            "99999999999999999999999", "0xFFFFFFFFFFFFFFFFF"}) {
    expect_message(refusal_of("optimizer.warmup_steps = " + std::string(value)), "", {"64"});
  }
  for (const char* value : {"inf", "-inf", "nan", "+nan", "1e400"})
    expect_words(refusal_of("optimizer.lr = " + std::string(value)));
}

TEST(DeckProblems, ABadChoiceListsTheChoicesAndSuggestsTheNearestWhateverItsCase) {
  expect_message(
      refusal_of("parallel.sharding = \"full_shrd\""), "input.toml:2",
      {"parallel.sharding", "\"full_shrd\"", "\"FULL_SHARD\"", "\"SHARD_GRAD_OP\"", "\"NO_SHARD\"",
       "\n    parallel.sharding = \"full_shrd\"\n                        ^~~~~~~~~~~"});
  expect_words(refusal_of("parallel.sharding = \"elephant\""));
}

TEST(DeckProblems, AMissingKeyPointsAtItsTableOrElseAtTheFile) {
  expect_message(refusal("\n[model]\n"), "input.toml:2",
                 {"model.path", "[model]", "\n    [model]\n    ^~~~~~~"});
  expect_message(refusal(""), "input.toml", {"model.path", "[model]"});
}

TEST(DeckProblems, AllOfThemComeAtOnceByLineWithTheirCountLast) {
  expect_message(refusal("[parallel]\ntp = 0\nshardin = \"NO_SHARD\"\n[optimizer]\nlr = true\n",
                         {"optimizer.fused=1"}),
                 "input.toml",
                 {"model.path", "[model]", "input.toml:2", "parallel.tp", "0", "64",
                  "\n    tp = 0\n         ^", "input.toml:3", "[parallel]", "'shardin'",
                  "'sharding'", "\n    shardin = \"NO_SHARD\"\n    ^~~~~~~", "input.toml:5",
                  "optimizer.lr", "1e-05", "\n    lr = true\n         ^~~~", "optimizer.fused=1"});
}

TEST(DeckProblems, AContradictionPointsAtTheKeyOrItsTableOrTheFileOrTheOverride) {
  const auto first_line = [](const std::string& text, const std::vector<std::string>& overrides) {
    Deck deck(text, "input.toml", overrides);
    Sample sample;
    sample.bind(deck);
    deck.table("parallel", "")
        .problem("tp", "parallel.tp = 3 does not divide 32 heads", "each rank needs whole heads",
                 "Use 1, 2 or 4.");
    try {
      deck.finish();
    } catch (const core::Error& error) {
      const std::string message = error.what();
      return message.substr(0, message.find('\n'));
    }
    return std::string();
  };
  const std::string rest =
      "parallel.tp = 3 does not divide 32 heads (each rank needs whole heads). Use 1, 2 or 4.";
  const std::string model = "model.path = \"m\"\n";
  EXPECT_EQ(first_line(model + "[parallel]\n\ntp = 3\n", {}), "input.toml:4: " + rest);
  EXPECT_EQ(first_line(model + "[parallel]\n", {}), "input.toml:2: " + rest);
  EXPECT_EQ(first_line(model, {}), "input.toml: " + rest);
  expect_message(first_line(model + "[parallel]\ntp = 2\n", {"parallel.tp=3"}), "command line",
                 {"parallel.tp=3", rest});
}

TEST(DeckProblems, FinishReportsWhatWasFoundSinceItLastSucceeded) {
  Deck deck("model.path = \"m\"", "input.toml", {});
  Sample sample;
  sample.bind(deck);
  EXPECT_NO_THROW(deck.finish());
  deck.table("model", "").problem("path", "it is gone", "", "");
  EXPECT_THROW(deck.finish(), core::Error);
}

TEST(DeckProblems, TheCaretStandsRightBehindTabsAndLettersOfSeveralBytes) {
  const std::string message = refusal("\"model\".path = \"é\"\nmodel.init\t= \"ä\" # ö\n");
  EXPECT_NE(message.find("    model.init\t= \"ä\" # ö\n"
                         "              \t  ^~~"),
            std::string::npos)
      << message;
}

TEST(DeckProblems, ALongLineIsCutAroundThePlace) {
  const std::string message =
      refusal("model = {path = \"" + std::string(1900, 'x') + "\", init = 5}\n");
  EXPECT_LT(message.size(), 600u);
  EXPECT_NE(message.find("init = 5}\n"), std::string::npos) << message;
  EXPECT_LT(refusal_of("parallel.tp = \"" + std::string(1900, 'x') + "\"").size(), 600u);
}

TEST(DeckProblems, TextFromTheDeckCannotSteerATerminal) {
  const std::string message = refusal_of("model.\"\\u001b[2J\" = 1\nmodel.init = \"\\u001b[2J\"");
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_NE(message.find("\\u001B[2J"), std::string::npos) << message;
}

TEST(DeckProblems, AStringWithANulIsRefusedBecausePathsEndThere) {
  EXPECT_NE(refusal("model.path = \"a\\u0000b\"").find("U+0000"), std::string::npos);
}

TEST(DeckProblems, AHundredProblemsAreCountedButNotAllPrinted) {
  std::string lines = "[model]\npath = \"m\"\n";
  for (int i = 0; i < 100; ++i)
    lines += "zzzz" + std::to_string(i) + " = 1\n";
  const std::string message = refusal(lines);
  expect_message(message, "", {"input.toml", "100", "50"});
}

}  // namespace
}  // namespace finetune::deck::problems_test
