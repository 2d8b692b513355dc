// SPDX-License-Identifier: Apache-2.0
#include "plot/text_plot.hpp"

#include <gtest/gtest.h>

namespace finetune::plot {
namespace {

TEST(TextPlot, DrawsALineFromCornerToCorner) {
  const auto lines = text_plot({{0, 0}, {10, 4}}, 31, 5, Letters::ascii);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0].find('*'), lines[0].rfind('*') - 2) << lines[0];
  EXPECT_EQ(lines[0].size(), 30u) << lines[0];
  EXPECT_EQ(lines[4].find('*'), 10u) << lines[4];
  EXPECT_TRUE(lines[5].ends_with("step 10")) << lines[5];
  EXPECT_NE(lines[5].find(" 0 "), std::string::npos);
}

TEST(TextPlot, SetsTheDotsOfBraille) {
  // A level line in the upper half of four rows of dots: one row of letters, all alike.
  const auto lines = text_plot({{0, 1}, {9, 1}}, 31, 2, Letters::braille);
  ASSERT_EQ(lines.size(), 3u);
  const std::string all = lines[0] + lines[1];
  EXPECT_NE(all.find("\u28c0"), std::string::npos) << all;  // dots 7 and 8
}

TEST(TextPlot, OfNothingOrInNoSpaceIsEmpty) {
  EXPECT_TRUE(text_plot({}, 80, 10, Letters::ascii).empty());
  EXPECT_TRUE(text_plot({{1, 1}}, 5, 10, Letters::ascii).empty());
  EXPECT_FALSE(text_plot({{1, 1}}, 80, 10, Letters::ascii).empty());
}

TEST(TextBar, IsFullAsFarAsItIsDone) {
  EXPECT_EQ(text_bar(0, 4, Letters::ascii), "....");
  EXPECT_EQ(text_bar(0.5, 4, Letters::ascii), "##..");
  EXPECT_EQ(text_bar(2, 4, Letters::ascii), "####");
}

}  // namespace
}  // namespace finetune::plot
