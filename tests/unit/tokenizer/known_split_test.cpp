// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/known_split.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tokenizer/detail/regex.hpp"

namespace finetune::tokenizer::known_split_test {
namespace {

/// What each pattern treats differently, and its neighbours.
constexpr std::array<std::string_view, 36> fragments{
    "a",      "B",      "é",      "ſ",      "K",  "界", "ʰ",  "1",      "23",
    "٣",      "½",      "Ⅻ",      " ",      "  ", "\t", "\n", "\r",     "\r\n",
    "\u00A0", "\u2003", "\u0085", "\u180E", "'",  "'s", "'S", "'ll",    "'lL",
    "'re",    "'V",     "'ſ",     ".",      ",,", "-",  "😀",  "\u0301", "\u200D"};

std::vector<std::string> by_regex(const Regex& regex, const std::string& text) {
  Matcher matcher;
  std::vector<std::string> words;
  std::size_t from = 0;
  while (const auto match = regex.find(text, from, matcher)) {
    EXPECT_EQ(match->begin, from) << "the pattern covers all text";
    words.push_back(text.substr(match->begin, match->end - match->begin));
    from = match->end;
  }
  EXPECT_EQ(from, text.size());
  return words;
}

std::vector<std::string> by_hand(const KnownSplit& split, const std::string& text) {
  std::vector<std::string> words;
  split.each(text, [&](ByteRange range) {
    words.push_back(text.substr(range.begin, range.end - range.begin));
  });
  return words;
}

class KnownPattern : public ::testing::TestWithParam<std::string_view> {};

TEST_P(KnownPattern, SplitsAsTheExpressionDoes) {
  const Regex regex(std::string(GetParam()), "test");
  const KnownSplit split = KnownSplit::of(GetParam()).value();
  std::uint64_t state = 12345;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (int n = 0; n < 2 + i % 9; ++n) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      text += fragments[(state >> 33) % fragments.size()];
    }
    ASSERT_EQ(by_hand(split, text), by_regex(regex, text)) << testing::PrintToString(text);
  }
}

std::string name_of(const ::testing::TestParamInfo<std::string_view>& info) {
  return std::vector<std::string>{"gpt2", "llama3", "qwen2"}[info.index];
}

INSTANTIATE_TEST_SUITE_P(All, KnownPattern,
                         ::testing::Values(KnownSplit::gpt2_pattern, KnownSplit::llama3_pattern,
                                           KnownSplit::qwen2_pattern),
                         name_of);

TEST(KnownSplit, KnowsLettersAndDigitsOfUnicode16) {
  const KnownSplit split = KnownSplit::of(KnownSplit::qwen2_pattern).value();
  // U+13B51, a hieroglyph, and U+16130, a digit; as symbols they would take the colon along.
  const std::string text = "\U00013B51:X\U00016130\U00016130:";
  EXPECT_EQ(by_hand(split, text),
            (std::vector<std::string>{"\U00013B51", ":X", "\U00016130", "\U00016130", ":"}));
}

TEST(KnownSplit, KnowsNoOtherPattern) {
  EXPECT_FALSE(KnownSplit::of(R"(\s+)"));
  EXPECT_FALSE(KnownSplit::of(std::string(KnownSplit::gpt2_pattern) + "|x"));
}

}  // namespace
}  // namespace finetune::tokenizer::known_split_test
