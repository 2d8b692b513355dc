// SPDX-License-Identifier: Apache-2.0
// The quickstart's tokenizer trainer.

#include <gtest/gtest.h>

#include <set>

#include "core/error.hpp"
#include "generator/merges.hpp"

namespace finetune::quickstart::merges_test {
namespace {

using Strings = std::vector<std::string_view>;

TEST(SplitWords, LeadsAWordWithOneBlankOrMark) {
  EXPECT_EQ(split_words("Mara has the kite"), (Strings{"Mara", " has", " the", " kite"}));
  EXPECT_EQ(split_words("\"Who?\" said Tam"), (Strings{"\"Who", "?\"", " said", " Tam"}));
}

TEST(SplitWords, KeepsLineEndsWithTheSymbolsBeforeThem) {
  EXPECT_EQ(split_words("a.\n\n### B:\nc"), (Strings{"a", ".\n\n", "###", " B", ":\n", "c"}));
}

TEST(SplitWords, TakesBlanksUpToTheLastLineEnd) {
  EXPECT_EQ(split_words("a \n  \n  b"), (Strings{"a", " \n  \n", " ", " b"}));
  EXPECT_EQ(split_words("a   b  "), (Strings{"a", "  ", " b", "  "}));
}

TEST(SplitWords, CutsNumbersAfterThreeDigitsAndBeforeTheirBlank) {
  EXPECT_EQ(split_words("in 12345"), (Strings{"in", " ", "123", "45"}));
}

TEST(SplitWords, CutsContractionsInEitherCase) {
  EXPECT_EQ(split_words("it's WE'LL 'dog"), (Strings{"it", "'s", " WE", "'LL", " '", "dog"}));
}

TEST(SplitWords, RefusesTextBeyondAscii) {
  EXPECT_THROW(split_words("caf\xC3\xA9"), core::Error);
}

TEST(ByteCharacter, IsDifferentForEveryByte) {
  std::set<std::string> characters;
  for (const unsigned char byte : byte_order())
    characters.insert(byte_character(byte));
  EXPECT_EQ(characters.size(), 256u);
  EXPECT_EQ(byte_character('a'), "a");
  EXPECT_EQ(byte_character(' '), "\xC4\xA0");   // U+0120
  EXPECT_EQ(byte_character('\n'), "\xC4\x8A");  // U+010A
}

TEST(MergeLearner, MergesTheMostFrequentPairFirst) {
  MergeLearner learner;
  learner.read("xy xyz xyz ab");
  const Merges merges = learner.learn(259);
  ASSERT_EQ(merges.tokens.size(), 259u);
  EXPECT_EQ(merges.tokens[256], "xy");    // 3 times
  EXPECT_EQ(merges.tokens[257], " xy");   // 2 times, as "xyz" below, but a smaller pair
  EXPECT_EQ(merges.tokens[258], " xyz");  // "xyz" is gone: its words begin with " xy" now
}

TEST(MergeLearner, RepeatedLettersMergeFromTheLeft) {
  MergeLearner learner;
  learner.read("aaa");
  const Merges merges = learner.learn(258);
  EXPECT_EQ(merges.tokens[256], "aa");
  EXPECT_EQ(merges.tokens[257], "aaa");
}

TEST(MergeLearner, RefusesMoreTokensThanTheTextHas) {
  MergeLearner learner;
  learner.read("ab");
  EXPECT_THROW(learner.learn(258), core::Error);
}

}  // namespace
}  // namespace finetune::quickstart::merges_test
