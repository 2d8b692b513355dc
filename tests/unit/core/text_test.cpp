// SPDX-License-Identifier: Apache-2.0
#include "core/text.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/hash.hpp"

namespace finetune::core::text_test {
namespace {

TEST(FirstBytes, AreWholeCharacters) {
  EXPECT_EQ(first_bytes("abc", 3), "abc");
  EXPECT_EQ(first_bytes("abc", 2), "ab");
  EXPECT_EQ(first_bytes("a\u00E9b", 2), "a");
  EXPECT_EQ(first_bytes("a\u00E9b", 3), "a\u00E9");
  EXPECT_EQ(first_bytes("\uFF5C", 2), "");
}

TEST(Text, FindsTheFirstInvalidByte) {
  EXPECT_EQ(invalid_utf8("Führer 😀"), std::nullopt);
  EXPECT_EQ(invalid_utf8("ab\xC0\x80"), 2u);        // overlong
  EXPECT_EQ(invalid_utf8("\xED\xA0\x80"), 0u);      // surrogate
  EXPECT_EQ(invalid_utf8("a\xF0\x9F\x98"), 1u);     // cut off
  EXPECT_EQ(invalid_utf8("\xF4\x90\x80\x80"), 0u);  // beyond U+10FFFF
}

TEST(Text, SuggestsTheNearestNameOnlyWhenItIsNear) {
  const std::vector<std::string> names = {"sharding", "bucket", "tp"};
  EXPECT_EQ(nearest("shardng", names), "sharding");
  EXPECT_EQ(nearest("elephant", names), std::nullopt);
  EXPECT_EQ(nearest("shradnig", names), "sharding") << "two letters that changed places";
}

TEST(Text, AShortNameAndOneWithManyOtherLettersAreNearToNothing) {
  const std::vector<std::string> names = {"lr", "max_steps", "eps"};
  EXPECT_EQ(nearest("r", names), std::nullopt);
  EXPECT_EQ(nearest("eval_steps", names), std::nullopt);
  EXPECT_EQ(nearest("max_step", names), "max_steps");
}

TEST(Text, NumbersReadBackToTheSameBits) {
  for (const double value : {0.1, 1.0 / 3, 6.02e23, 1e-300})
    EXPECT_EQ(std::stod(round_trip(value)), value);
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(-999), "-999");
  EXPECT_EQ(human_bytes(3 * 1024 * 1024), "3.00 MiB");
}

TEST(Text, EscapesControlCharacters) {
  EXPECT_EQ(printable("a\x1b[2Jb\n"), "a\\x1b[2Jb\n");
  EXPECT_EQ(printable("\u009b2J \x9b"), "\\u009b2J \\x9b");
  EXPECT_EQ(printable("\u202eabc\u2066\u200f"), "\\u202eabc\\u2066\\u200f");
  EXPECT_EQ(printable("\t\u00e9\u2581 \U0001f600"), "\t\u00e9\u2581 \U0001f600");
}

TEST(Text, ANameStaysInItsLine) {
  EXPECT_EQ(one_line("a\nerror: \tb\r\u2028"), "a\\x0aerror: \\x09b\\x0d\\u2028");
}

TEST(Hash, Crc32cGivesTheStandardCheckValue) {
  const std::string text = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(text))), 0xE3069283u);
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(crc32c(bytes.subspan(4), crc32c(bytes.first(4))), 0xE3069283u);
}

}  // namespace
}  // namespace finetune::core::text_test
