// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/regex.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "tokenizer_files.hpp"

namespace finetune::tokenizer::regex_test {
namespace {

using test::message_of;

bool matches(const std::string& pattern, std::string_view text) {
  Matcher matcher;
  return Regex(pattern, "test").find(text, 0, matcher).has_value();
}

TEST(Regex, ReadsEscapesAsOnigurumaDoes) {
  EXPECT_TRUE(matches(R"(^\s$)", "\u3000"));
  EXPECT_FALSE(matches(R"(\s)", "\u180E")) << "no white space since Unicode 6.3";
  EXPECT_TRUE(matches(R"(^\w\w$)", "e\u0301")) << "marks belong to words";
  EXPECT_TRUE(matches(R"(\w)", "²"));
  EXPECT_FALSE(matches(R"([\w])", "²"));
  EXPECT_TRUE(matches(R"(^\h$)", "F")) << "a hexadecimal digit, not a blank";
  EXPECT_FALSE(matches(R"(\h)", " "));
  EXPECT_TRUE(matches(R"(\u00e9)", "é"));
  EXPECT_TRUE(matches(R"(a$)", "a\nb")) << "line ends are always ends";
  EXPECT_TRUE(matches(R"((?m:a.b))", "a\nb")) << "m lets the dot take a line end";
  EXPECT_FALSE(matches(R"(a.b)", "a\nb"));
  EXPECT_FALSE(matches("e\\b", "e\u0301")) << "a mark is no boundary";
}

TEST(Regex, RefusesWhatTheTwoDialectsReadDifferently) {
  for (const char* pattern : {R"(\p{N}{1,3}+)", "[a[b]]", "[a&&b]", R"([\W])", R"(\u12)", "a\\",
                              R"(\Ga)", "(*COMMIT)a", "(*NO_JIT)a"}) {
    const std::string message = message_of([&] { Regex(pattern, "file: place"); });
    EXPECT_EQ(message.rfind("file: place: the pattern", 0), 0U) << pattern << ": " << message;
  }
}

TEST(Regex, SaysWhereAPatternIsBroken) {
  const std::string message = message_of([] { Regex("a(b", "file: place"); });
  EXPECT_NE(message.find("cannot be compiled"), std::string::npos) << message;
  EXPECT_NE(message_of([] { Regex("", "place"); }).find("0 bytes"), std::string::npos);
  EXPECT_NE(message_of([] { Regex(R"(\C)", "place"); }), "") << "would cut characters";
}

TEST(Regex, GivesUpOnPatternsThatExplode) {
  const Regex regex("(a+)+$", "place");
  const std::string text = std::string(60, 'a') + "b";
  Matcher matcher;
  const std::string message = message_of([&] { regex.find(text, 0, matcher); });
  EXPECT_NE(message.find("gave up at byte 0"), std::string::npos) << message;
}

TEST(Regex, FindsTheSameInLongTextsAsInShortOnes) {
  // Starts are tried in windows: matches that begin at, before and behind their borders.
  const Regex word("(?<=\u00e9)b+", "test");
  for (std::size_t before = 1000; before < 1100; ++before) {
    std::string text;
    while (text.size() < before)
      text += before % 2 == 0 ? "\u3042" : "x";
    const std::size_t begin = text.size() + 2;
    text += "\u00e9bb" + std::string(3000, 'x');
    Matcher matcher;
    const auto found = word.find(text, 0, matcher);
    ASSERT_TRUE(found) << before;
    EXPECT_EQ(found->begin, begin);
    EXPECT_EQ(found->end, begin + 2);
    EXPECT_FALSE(word.find(text, found->end, matcher)) << before;
  }
  Matcher matcher;
  const auto at_end = Regex("\\z", "test").find(std::string(2048, 'x'), 0, matcher);
  ASSERT_TRUE(at_end);
  EXPECT_EQ(at_end->begin, 2048U);
}

TEST(Regex, GivesUpOnPatternsThatAreSlowEverywhere) {
  // Below the match limit at each byte, but there are many bytes.
  std::string pattern;
  for (int i = 0; i < 14; ++i)
    pattern += "(?:a|ab)?";
  const Regex regex(pattern + "[yz]", "place");
  const std::string text(std::size_t{1} << 20, 'a');
  Matcher matcher;
  const std::string message = message_of([&] { regex.find(text, 0, matcher); });
  EXPECT_NE(message.find("takes too long"), std::string::npos) << message;
}

TEST(Regex, FindsInTextWithZeroBytes) {
  Matcher matcher;
  const auto found = Regex("b", "test").find(std::string_view("a\0b", 3), 0, matcher);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->begin, 2U);
}

}  // namespace
}  // namespace finetune::tokenizer::regex_test
