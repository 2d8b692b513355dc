// SPDX-License-Identifier: Apache-2.0
#include "deck/detail/precheck.hpp"

#include <fmt/format.h>

#include "support/messages.hpp"
#include "unit/deck/sample.hpp"

namespace finetune::deck::precheck_test {
namespace {

using finetune::tests::expect_message;

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += text;
  return out;
}

TEST(DeckPrecheck, BytesThatAreNotUtf8AreNamedByLineAndPlace) {
  expect_message(refusal("[model]\npath = \"\xC3\x28\"\n"), "input.toml:2", {"9", "0xc3", "UTF-8"});
}

TEST(DeckPrecheck, ControlCharactersAreRefusedEvenInComments) {
  const auto refused = [](const std::string& text) { return precheck(text).has_value(); };
  EXPECT_TRUE(refused(std::string("# \0", 3)));
  EXPECT_TRUE(refused("# \x1b[2J"));
  EXPECT_TRUE(refused("# \x7f"));
  EXPECT_FALSE(refused("# \t\r\n"));
}

TEST(DeckPrecheck, SizeAndLengthOfALineAreBounded) {
  EXPECT_FALSE(precheck(repeated("# comment 16 by\n", 65536)).has_value());
  EXPECT_TRUE(precheck(repeated("# comment 16 by\n", 65537)).has_value());
  EXPECT_FALSE(precheck(fmt::format("#{:x<2047}", "")).has_value());
  EXPECT_TRUE(precheck(fmt::format("#{:x<2048}", "")).has_value());
}

TEST(DeckPrecheck, NestingIsBoundedOutsideStringsAndComments) {
  EXPECT_FALSE(precheck(fmt::format("a = {:[<64}{:]<64}", "", "")).has_value());
  EXPECT_TRUE(precheck(fmt::format("a = {:[<65}", "")).has_value());
  EXPECT_TRUE(precheck(fmt::format("a = {}", repeated("{a = [", 33))).has_value());
  const std::string many(100, '[');
  for (const char* pattern : {"# {}", "a = \"{}\"", "a = '{}'", "a = \"\"\"\n{}\"\"\"",
                              "a = '''\n{}'''", "a = \"\\\"{}\""})
    EXPECT_FALSE(precheck(fmt::format(fmt::runtime(pattern), many)).has_value()) << pattern;
  // Closing brackets in strings and comments do not make up for opening ones.
  EXPECT_TRUE(precheck(fmt::format("a = {}", repeated("[\"]\",", 65))).has_value());
  EXPECT_TRUE(precheck(fmt::format("a = {}", repeated("[ # ]\n", 65))).has_value());
}

TEST(DeckPrecheck, OpeningBracketsAreBoundedWhereverTheyStand) {
  EXPECT_FALSE(precheck(repeated("#[\n", 1024)).has_value());
  EXPECT_TRUE(precheck(repeated("#[\n", 1025)).has_value());
}

TEST(DeckHostile, NestingOfTenThousandIsRefused) {
  const std::string open(10000, '[');
  EXPECT_NE(refusal(fmt::format("a = {}", open)), "");
  EXPECT_NE(refusal(fmt::format("a = {}", repeated("[\n", 10000))), "");
  EXPECT_NE(refusal(repeated("a = {", 1500)), "");
  EXPECT_NE(refusal(open), "");
}

TEST(DeckHostile, SmallFilesThatBrokeTomlLibrariesAreRefused) {
  // Heap over-read of a last line without its end; two that never returned; an assertion.
  EXPECT_NE(refusal("\x27\x61\x20\xe1\x27\x61\x20\x20\x3d\x20\x5b\x3d\x20\x5b\x7e\x31"), "");
  EXPECT_NE(refusal("\x27 a \x27 = [=  [~1"), "");
  EXPECT_NE(refusal("\x23\x61\x20\xf5\x20\x3d\x20\x20\x20\x3d\x20\x20\x0a\x23\x20\x78\x09\x61\x09"
                    "\x7f\x88"),
            "");
  EXPECT_NE(refusal("a = ? \"x\"\nc= [[1]\nb ? \"x\"\nc= [[ 1[\n #? = 1"), "");
  EXPECT_NE(refusal("[|]"), "");
}

TEST(DeckHostile, TensOfThousandsOfKeysOrTablesAreRefused) {
  std::string keys = "[model]\n";
  std::string tables;
  for (int i = 0; i < 10001; ++i) {
    keys += fmt::format("k{} = 1\n", i);
    tables += fmt::format("t{}.a = 1\n", i);
  }
  expect_message(refusal(keys), "", {"10,000"});
  expect_message(refusal(tables), "", {"10,000"});
}

TEST(DeckHostile, AStringOfASurrogateIsRefused) {
  EXPECT_NE(refusal("model.path = \"\\uD800\""), "");
  EXPECT_NE(refusal("model.path = \"\\UFFFFFFFF\""), "");
}

}  // namespace
}  // namespace finetune::deck::precheck_test
