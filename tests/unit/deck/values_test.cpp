// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "support/messages.hpp"
#include "unit/deck/sample.hpp"

namespace finetune::deck::values_test {
namespace {

using finetune::tests::expect_message;

TEST(DeckValues, KeysGetTheirValuesAndTheOthersKeepTheirDefaults) {
  const Sample sample = read(
      "[model]\npath = \"a/b\"\n[optimizer]\nlr = 2.5e-4\nfused = true\nwarmup_steps = 1_000\n");
  EXPECT_EQ(sample.path, "a/b");
  EXPECT_EQ(sample.lr, 2.5e-4);
  EXPECT_EQ(sample.warmup_steps, 1000);
  EXPECT_TRUE(sample.fused);
  EXPECT_EQ(sample.init, "pretrained");
  EXPECT_EQ(sample.tp, 1);
}

TEST(DeckValues, AChoiceIsBoundToWhatItStandsFor) {
  enum class Order { forward, backward };
  const auto read_order = [](const std::string& text) {
    Deck deck(text, "input.toml", {});
    Order order = Order::backward;
    deck.table("data", "What is read.")
        .choice({"order", Restart::free, "Where it begins."}, order,
                {{"forward", Order::forward}, {"backward", Order::backward}});
    deck.finish();
    return order;
  };
  EXPECT_EQ(read_order("data.order = \"forward\"\n"), Order::forward);
  EXPECT_EQ(read_order(""), Order::backward);
  EXPECT_THROW(read_order("data.order = \"sideways\"\n"), core::Error);
}

TEST(DeckValues, DottedKeysAndInlineTablesAreTables) {
  EXPECT_EQ(read("model.path = \"x\"\nparallel.tp = 2\n").tp, 2);
  EXPECT_EQ(read("model = {path = \"x\"}\nparallel = {tp = 2}\n").tp, 2);
}

TEST(DeckValues, AByteOrderMarkWindowsLineEndsAndAMissingLastLineEndDoNoHarm) {
  EXPECT_EQ(read("\xEF\xBB\xBFmodel.path = \"x\"\r\n[parallel]\r\ntp = 2").tp, 2);
}

TEST(DeckValues, StringsOfAllFourFormsAreRead) {
  EXPECT_EQ(read("model.path = 'C:\\x'").path, "C:\\x");
  EXPECT_EQ(read("model.path = \"a\\tb\\u00e9\"").path, "a\tbé");
  EXPECT_EQ(read("model.path = \"\"\"\na\nb\"\"\"").path, "a\nb");
  EXPECT_EQ(read("model.path = '''\na'b'''").path, "a'b");
}

TEST(DeckValues, IntegersAreReadInEveryBaseUpToTheirLimits) {
  const auto steps = [](const std::string& value) {
    return read("model.path = \"x\"\noptimizer.warmup_steps = " + value).warmup_steps;
  };
  EXPECT_EQ(steps("0x1F"), 31);
  EXPECT_EQ(steps("0o17"), 15);
  EXPECT_EQ(steps("0b101"), 5);
  EXPECT_EQ(steps("+7"), 7);
  EXPECT_EQ(steps("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(steps("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
}

TEST(DeckValues, AnIntegerIsAcceptedWhereARealIsExpectedButNotTheReverse) {
  EXPECT_EQ(read("model.path = \"x\"\noptimizer.lr = 2").lr, 2.0);
  EXPECT_EQ(read("model.path = \"x\"\noptimizer.lr = 1_0.5e-0_1").lr, 1.05);
  EXPECT_NE(refusal_of("parallel.tp = 2.0"), "");
}

/// What [a] x = ... of the deck, or `overrides`, gives a key whose 0 is "auto".
struct AutoKey {
  AutoKey(const std::string& text, const std::vector<std::string>& overrides = {})
      : deck("[a]\n" + text, "input.toml", overrides) {
    deck.table("a", "A.").integer({"x", Restart::fixed, "X."}, value,
                                  {.min = 2, .max = 9, .zero_is_auto = true});
    deck.finish();
  }
  Deck deck;
  std::int64_t value = 3;
};

TEST(DeckValues, AutoIsAnIntegerWhereTheKeySaysSo) {
  EXPECT_EQ(AutoKey("x = \"auto\"").value, 0);
  EXPECT_EQ(AutoKey("", {"a.x=auto"}).value, 0);
  EXPECT_EQ(AutoKey("x = 2").value, 2);
  EXPECT_THROW(AutoKey("x = 1"), core::Error);
  EXPECT_NE(AutoKey("x = \"auto\"").deck.resolved().find("x = \"auto\""), std::string::npos);
  EXPECT_EQ(AutoKey("x = \"auto\"").deck.fixed_values().front().second, "\"auto\"");
  const auto told = [](const std::string& text) -> std::string {
    try {
      const AutoKey key(text);
    } catch (const core::Error& error) {
      return error.what();
    }
    return "";
  };
  expect_message(told("x = 0"), "", {"2", "9", "\"auto\""});
  expect_message(told("x = \"automatic\""), "", {"\"auto\""});
  EXPECT_NE(refusal_of("parallel.tp = \"auto\""), "") << "where 0 is not allowed";
}

TEST(DeckValues, ATableMayBeBoundByTwoOwners) {
  Deck deck("[a]\nx = 1\ny = 2\n", "input.toml", {});
  std::int64_t x = 0;
  std::int64_t y = 0;
  deck.table("a", "One.").integer({"x", Restart::free, "X."}, x);
  deck.table("a", "Another.").integer({"y", Restart::free, "Y."}, y);
  EXPECT_NO_THROW(deck.finish());
  EXPECT_EQ(x + y, 3);
}

TEST(DeckValues, ATableStaysValidAfterItsDeckMoved) {
  Deck first("[a]\nx = 1\n", "input.toml", {});
  Table table = first.table("a", "One.");
  Deck second = std::move(first);
  std::int64_t x = 0;
  table.integer({"x", Restart::free, "X."}, x);
  EXPECT_EQ(x, 1);
  EXPECT_NO_THROW(second.finish());
}

core::ErrorKind kind_of_binding(double value, bool twice) {
  Deck deck("", "input.toml", {});
  Table table = deck.table("a", "A.");
  try {
    table.real({"x", Restart::free, "X."}, value, {.min = 0.0});
    if (twice) table.real({"x", Restart::free, "X."}, value);
  } catch (const core::Error& error) {
    return error.kind();
  }
  return core::ErrorKind::input;
}

TEST(DeckValues, BindingAKeyTwiceOrWithADefaultOutsideItsRangeIsABug) {
  EXPECT_EQ(kind_of_binding(0.0, false), core::ErrorKind::input);
  EXPECT_EQ(kind_of_binding(0.0, true), core::ErrorKind::bug);
  EXPECT_EQ(kind_of_binding(-1.0, false), core::ErrorKind::bug);
  EXPECT_EQ(kind_of_binding(std::numeric_limits<double>::quiet_NaN(), false), core::ErrorKind::bug);
}

}  // namespace
}  // namespace finetune::deck::values_test
