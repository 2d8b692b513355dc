// SPDX-License-Identifier: Apache-2.0
// Tables whose keys somebody else defines.
#include <gtest/gtest.h>

#include <map>

#include "core/error.hpp"
#include "deck/deck.hpp"
#include "support/messages.hpp"

namespace finetune::deck::others_test {
namespace {

using finetune::tests::expect_message;

using Values = std::map<std::string, std::string>;

/// A table [env] with the key `strict` of its own, and any other key in small letters.
struct Environment {
  bool strict = false;
  Values values;
  std::string resolved;

  explicit Environment(const std::string& text, const std::vector<std::string>& overrides = {}) {
    Deck deck(text, "input.toml", overrides);
    Table table = deck.table("env", "Variables.");
    table.boolean({"strict", Restart::free, "Whether they hold."}, strict);
    const auto accepts = [](const std::string& key) {
      return key.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
    };
    table.others(Restart::free, accepts, values);
    deck.finish();
    resolved = deck.resolved();
  }
};

std::string refusal(const std::string& text) {
  try {
    Environment environment(text);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::deck);
    return error.what();
  }
  return "";
}

TEST(DeckOthers, AreStringsIntegersAndBooleansAsText) {
  const Environment environment(
      "[env]\na = \"x y\"\nb = 1_000\nc = 0x10\nd = true\ne = false\nstrict = true");
  EXPECT_TRUE(environment.strict);
  EXPECT_EQ(environment.values,
            (Values{{"a", "x y"}, {"b", "1000"}, {"c", "16"}, {"d", "1"}, {"e", "0"}}));
}

TEST(DeckOthers, MayBeOverriddenWithoutQuotes) {
  const Environment environment("[env]\na = \"x\"", {"env.a=eth0", "env.b=2"});
  EXPECT_EQ(environment.values, (Values{{"a", "eth0"}, {"b", "2"}}));
}

TEST(DeckOthers, ReadBackFromTheResolvedDeck) {
  const Environment environment("[env]\na = \"x\\\"y\"\nb = 1_000\nd = true");
  EXPECT_EQ(Environment(environment.resolved).values, environment.values);
}

TEST(DeckOthers, AreNoneWithoutTheTable) {
  EXPECT_TRUE(Environment("").values.empty());
}

TEST(DeckOthers, OfOtherTypesAreRefused) {
  expect_message(refusal("[env]\na = 1.5"), "", {"input.toml:2", "env.a", "1.5"});
  EXPECT_NE(refusal("[env]\na = [1]").find("input.toml:2: env.a = "), std::string::npos);
  expect_message(refusal("[env]\na = \"x\\u0000y\""), "", {"env.a", "U+0000"});
  expect_message(refusal("[env.a]\nb = 1"), "", {"[env]", "'a'"});
}

TEST(DeckOthers, WithNamesThatAreNotAcceptedAreUnknownKeys) {
  expect_message(refusal("[env]\nA1 = 1"), "", {"[env]", "'A1'"});
}

}  // namespace
}  // namespace finetune::deck::others_test
