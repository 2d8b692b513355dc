// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "unit/deck/sample.hpp"

namespace finetune::deck::reference_test {
namespace {

std::string resolved(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Deck deck(text, "input.toml", overrides);
  Sample sample;
  sample.bind(deck);
  deck.finish();
  return deck.resolved();
}

std::string reference() {
  Deck deck = Deck::for_reference();
  Sample sample;
  sample.bind(deck);
  deck.finish();
  return deck.reference();
}

TEST(DeckReference, TellsEverythingAboutEachKey) {
  const std::string text = reference();
  EXPECT_NE(text.find("# How the work is shared.\n"
                      "[parallel]\n"
                      "\n"
                      "# What is sharded.\n"
                      "# text, one of \"FULL_SHARD\", \"SHARD_GRAD_OP\", \"NO_SHARD\"; "
                      "default \"FULL_SHARD\"; free on restart\n"
                      "sharding = \"FULL_SHARD\"\n"
                      "\n"
                      "# Tensor parallel size.\n"
                      "# integer, from 1 to 64; unit: ranks; default 1; free on restart\n"
                      "tp = 1\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("# Folder of the model.\n"
                      "# text; required; fixed on restart\n"
                      "# path = \"\"\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("# number, above 0.0; default 1e-05; free on restart\nlr = 1e-05\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("# Whether all the parameters of a unit are updated by one kernel, which is "
                      "faster and needs "
                      "less\n# memory than one after the other.\n"
                      "# true or false; default false; free on restart\nfused = false\n"),
            std::string::npos)
      << text;
}

TEST(DeckReference, ReadsBackToTheDefaults) {
  EXPECT_EQ(resolved(reference(), {"model.path=m"}), resolved("model.path = \"m\""));
}

TEST(DeckReference, LinesAreAtMostAHundredColumnsWide) {
  const std::string text = reference();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 100u);
    begin = end + 1;
  }
}

TEST(DeckResolved, HoldsEveryKeyWithDeckOverrideAndDefaultValues) {
  EXPECT_EQ(resolved("[model]\npath = \"a\"\n[optimizer]\nlr = 1\n", {"parallel.tp=2"}),
            "# Every key with the value that this run uses.\n"
            "\n"
            "[model]\n"
            "path = \"a\"\n"
            "init = \"pretrained\"\n"
            "\n"
            "[parallel]\n"
            "sharding = \"FULL_SHARD\"\n"
            "tp = 2\n"
            "\n"
            "[optimizer]\n"
            "lr = 1.0\n"
            "beta2 = 1.0\n"
            "warmup_steps = -1\n"
            "fused = false\n");
}

TEST(DeckResolved, ReadsBackToTheSameText) {
  const std::vector<std::string> paths = {"a \"quoted\" \\ path", "two\nlines\tand é 😀", "#[x]",
                                          "'''", "\r"};
  for (const std::string& path : paths) {
    const std::string text = resolved("", {"model.path=" + path});
    EXPECT_EQ(resolved(text), text);
    EXPECT_EQ(read(text).path, path);
  }
}

TEST(DeckResolved, LongTextsGoOverLinesThatTheReaderTakes) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += i % 7 == 0 ? "  two\n \t\\ \"\"\" é\u007f" : "no line end   here é";
  const std::string long_word(5000, 'x');
  for (const std::string& path : {text, long_word, std::string(3000, ' ') + "\n\n"}) {
    Deck deck("", "input.toml", {});
    Table table = deck.table("other", "One more.");
    std::string value = path;
    table.text({"long", Restart::free, "A long one."}, value);
    const std::string written = deck.resolved();
    Deck again(written, "input.toml", {});
    std::string read_back;
    again.table("other", "One more.").text({"long", Restart::free, "A long one."}, read_back);
    EXPECT_EQ(read_back, path);
  }
}

TEST(DeckResolved, RealNumbersReadBackToTheSameBits) {
  for (const double value :
       {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, 1e20, 1e21, 123456789.0, 1e-5}) {
    Deck deck("", "input.toml", {});
    double x = value;
    deck.table("a", "A.").real({"x", Restart::free, "X."}, x);
    Deck again(deck.resolved(), "input.toml", {});
    double y = 0.5;
    again.table("a", "A.").real({"x", Restart::free, "X."}, y);
    again.finish();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(x), std::bit_cast<std::uint64_t>(y)) << value;
  }
}

TEST(DeckFixedValues, ListsTheKeysThatARestartMustNotChange) {
  Deck deck("model.path = \"m\"", "input.toml", {"optimizer.warmup_steps=7"});
  Sample sample;
  sample.bind(deck);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"model.path", "\"m\""},
      {"model.init", "\"pretrained\""},
      {"optimizer.beta2", "1.0"},
      {"optimizer.warmup_steps", "7"}};
  EXPECT_EQ(deck.fixed_values(), expected);
}

}  // namespace
}  // namespace finetune::deck::reference_test
