// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "support/messages.hpp"
#include "unit/deck/sample.hpp"

namespace finetune::deck::any_values_test {
namespace {

using core::OrderedJson;
using finetune::tests::expect_message;

OrderedJson values(const std::string& text, const std::vector<std::string>& overrides = {},
                   std::string* resolved = nullptr) {
  Deck deck(text, "input.toml", overrides);
  OrderedJson read;
  deck.table("data", "Data.").values({"kwargs", Restart::fixed, "Names."}, read);
  deck.finish();
  if (resolved != nullptr) *resolved = deck.resolved();
  return read;
}

std::string refusal_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    values(text, overrides);
  } catch (const core::Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(DeckAnyValues, AreOfAnyTypeAndSortedByName) {
  const std::string expected =
      R"({"a-b":[1,[true],{"x":"y"}],"big":9223372036854775807,"deep":{"n":-0.5,"t":{}},"on":false,"real":2.0,"text":"a \"b\""})";
  for (const char* text :
       {"[data]\nkwargs = { text = 'a \"b\"', on = false, real = 2.0, deep = { t = {}, n = -0.5 }, "
        "big = 9223372036854775807, a-b = [1, [true], { x = \"y\" }] }\n",
        "[data.kwargs]\ntext = 'a \"b\"'\non = false\nreal = 2.0\nbig = 0x7FFF_FFFF_FFFF_FFFF\n"
        "a-b = [\n  1,\n  [true],\n  { x = \"y\" },\n]\n[data.kwargs.deep]\nn = -0.5\nt = {}\n"})
    EXPECT_EQ(values(text).dump(), expected) << text;
  EXPECT_EQ(values("", {"data.kwargs={on=false, n=[1, 2.5]}"}).dump(),
            R"({"n":[1,2.5],"on":false})");
  EXPECT_TRUE(values("").is_null());
  EXPECT_TRUE(values("[data]\nkwargs = {}\n").empty());
}

TEST(DeckAnyValues, ReadBackFromTheResolvedDeck) {
  std::string resolved;
  const OrderedJson read = values(
      "[data]\nkwargs = { \"a b\" = \"c\\nd\", real = 3.0, list = [1, \"x\", { y = [] }], t = {} "
      "}\n",
      {}, &resolved);
  EXPECT_NE(
      resolved.find(
          "kwargs = { \"a b\" = \"c\\nd\", list = [1, \"x\", { y = [] }], real = 3.0, t = {} }\n"),
      std::string::npos)
      << resolved;
  EXPECT_EQ(values(resolved), read);
  EXPECT_TRUE(values(resolved).at("real").is_number_float());
  values("", {}, &resolved);
  EXPECT_NE(resolved.find("kwargs = {}\n"), std::string::npos) << resolved;
}

TEST(DeckAnyValues, RefuseWhatJsonHasNotAtItsPlace) {
  expect_message(refusal_of("[data]\nkwargs = { a = 1, when = 2026-01-01 }\n"), "input.toml:2",
                 {"data.kwargs.when", "2026-01-01", "a date or time", "as a string"});
  expect_message(refusal_of("[data]\nkwargs = { a = [1.0, inf] }\n"), "input.toml:2",
                 {"data.kwargs.a", "inf", "finite"});
  expect_message(refusal_of("[data]\nkwargs = 7\n"), "input.toml:2",
                 {"data.kwargs", "7", "a table", "{ NAME = true }"});
  expect_message(refusal_of("", {"data.kwargs=[1]"}), "", {"data.kwargs", "a table"});
  expect_message(refusal_of("[data.kwargs]\na = \"" + std::string(500, 'x') + "\"\nb = \"" +
                            std::string(500, 'y') + "\"\n"),
                 "", {"data.kwargs", "1000 bytes", "Shorten it."});
}

}  // namespace
}  // namespace finetune::deck::any_values_test
