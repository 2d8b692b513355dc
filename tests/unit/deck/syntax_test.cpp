// SPDX-License-Identifier: Apache-2.0
#include "support/messages.hpp"
#include "unit/deck/sample.hpp"

namespace finetune::deck::syntax_test {
namespace {

using finetune::tests::expect_message;
using finetune::tests::expect_words;

/// `wanted` is the beginning of the message after the file's name, and `caret` its last line.
void expect(const std::string& text, const std::string& wanted, const std::string& caret) {
  const std::string message = refusal(text);
  EXPECT_EQ(message.substr(0, 11 + wanted.size()), "input.toml:" + wanted);
  EXPECT_EQ(message.substr(message.rfind('\n') + 1), "    " + caret) << message;
}

TEST(DeckSyntax, AWordWithoutQuotesIsShownWithTheRemedy) {
  expect_message(refusal("[model]\npath = some/folder\n"), "input.toml:2",
                 {"\"a/b\"", "\n    path = some/folder\n           ^"});
  for (const char* value : {"foo", "none", "if", "True", "/x", "a b"})
    expect_words(refusal("a = " + std::string(value)));
}

TEST(DeckSyntax, AKeyGivenTwiceNamesBothLines) {
  expect_message(refusal("[model]\npath = \"a\"\n\npath = \"b\"\n"), "input.toml:4",
                 {"'path'", "2", "\n    path = \"b\"\n           ^~~"});
}

TEST(DeckSyntax, ATableGivenTwiceNamesBothLines) {
  expect_message(refusal("[model]\npath = \"a\"\n[model]\ninit = \"b\"\n"), "input.toml:3",
                 {"'model'", "1", "\n    [model]\n    ^~~~~~~"});
}

TEST(DeckSyntax, EachMistakePointsAtItsLineAndPlace) {
  expect("\nx = \"foo\n", "2: this string does not end, or holds", "    ^");
  expect("x = 'foo\n", "1: this string does not end", "    ^");
  expect("x = \"\"\"foo\n\n", "1: this string does not end", "    ^");
  expect("x = \"a\\qb\"\n", "1: this string does not end, or holds", "    ^");
  expect("\nx =\n", "2: there is no value after =", "   ^");
  expect("x \"foo\"\n", "1: there is no = after the key", " ^");
  expect("= 1\n", "1: there is no key before =", "^");
  expect("[model\nx = 1\n", "1: this is neither a table nor a key", "^");
  expect("a b = 1\n", "1: this is not a key", " ^");
  expect("x = [1 2]\n", "1: this array does not continue here", "       ^");
  expect("x = [1,\ny = 2\n", "2: this does not belong into an array", "^");
  expect("\nx = [1, 2\n\n", "2: this array does not end", "    ^");
  expect("x = [1,\n", "1: this array does not end", "    ^");
  expect("[a] x = 1\n", "1: something follows the table's name", "   ^");
  expect("x = 5%\n", "1: something follows the value", "     ^");
  expect("x = 007\n", "1: this is not TOML (bad integer: leading zero). ", "    ^");
}

TEST(DeckSyntax, ALineThatTheLibraryMiscountsIsFoundByItsText) {
  EXPECT_EQ(refusal("\n\nwhen = 1979-05-27T99:00:00\n").substr(0, 14), "input.toml:3: ");
}

TEST(DeckSyntax, WindowsLineEndsDoNotShiftTheMessage) {
  expect("[model]\r\npath = foo\r\n", "2: this is not a TOML value", "       ^");
}

}  // namespace
}  // namespace finetune::deck::syntax_test
