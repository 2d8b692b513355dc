// SPDX-License-Identifier: Apache-2.0
#include "plot/line_plot.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "support/xml.hpp"

namespace finetune::plot {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t number = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1))
    ++number;
  return number;
}

/// The points of the first element with these classes.
std::vector<std::pair<double, double>> points_of(const std::string& svg,
                                                 const std::string& classes) {
  std::smatch match;
  std::vector<std::pair<double, double>> points;
  if (!std::regex_search(svg, match, std::regex("points=\"([^\"]*)\" class=\"" + classes + "\"")))
    return points;
  const std::string text = match[1];
  const std::regex pair("([-0-9.]+),([-0-9.]+)");
  for (std::sregex_iterator i(text.begin(), text.end(), pair), end; i != end; ++i)
    points.emplace_back(std::stod((*i)[1]), std::stod((*i)[2]));
  return points;
}

LinePlot small() {
  return {
      .id = "loss",
      .title = "Loss <of> \"two\" & more",
      .curves = {{"a", {{1, 4}, {2, 3}, {4, 1}}, 0, Curve::Style::line},
                 {"", {{1, 4}, {2, 2}}, 0, Curve::Style::faint},
                 {"b", {{1, 4}, {4, 2}}, 7, Curve::Style::dots}},
      .marks = {{2, 0, Mark::Kind::restart, "start 2"}, {4, 0, Mark::Kind::checkpoint, "saved"}}};
}

TEST(LinePlot, IsWellFormedInAPageAndAlone) {
  for (const std::string& text : {to_svg(small()), to_svg_file(small())})
    EXPECT_EQ(tests::markup_problem(text), "") << text;
}

TEST(LinePlot, PlacesPointsWhereTheAxesSay) {
  const auto points = points_of(to_svg(small()), "curve s0");
  ASSERT_EQ(points.size(), 3u);
  // x from 1 to 4 over the width: 2 is a third of the way.
  EXPECT_NEAR((points[1].first - points[0].first) / (points[2].first - points[0].first), 1.0 / 3,
              1e-3);
  // From 4 to 3 is a third of the way down from 4 to 1.
  EXPECT_NEAR((points[1].second - points[0].second) / (points[2].second - points[0].second),
              1.0 / 3, 1e-3);
  EXPECT_LT(points[0].second, points[2].second);
}

TEST(LinePlot, PutsItsTicksWhereTheirValuesAre) {
  const std::string text = to_svg(small());
  const auto points = points_of(text, "curve s0");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(text, match, std::regex("y=\"([0-9.]+)\"[^>]*>3<")));
  EXPECT_NEAR(std::stod(match[1]) - 4, points[1].second, 0.11);  // (2, 3); 4: half of a digit
  ASSERT_TRUE(std::regex_search(text, match, std::regex("x=\"([0-9.]+)\"[^>]*middle[^>]*>2<")));
  EXPECT_NEAR(std::stod(match[1]), points[1].first, 0.11);
}

TEST(LinePlot, SpacesPowersEvenly) {
  LinePlot plot = small();
  plot.curves = {{"a", {{1, 1}, {2, 10}, {3, 100}}, 0, Curve::Style::line}};
  plot.spacing = Spacing::logarithmic;
  const auto points = points_of(to_svg(plot), "curve s0");
  ASSERT_EQ(points.size(), 3u);
  EXPECT_NEAR(points[0].second - points[1].second, points[1].second - points[2].second, 0.11);
}

TEST(LinePlot, ShowsRestartsAndCheckpoints) {
  const std::string text = to_svg(small());
  EXPECT_EQ(count(text, "class=\"restart s0\""), 1u);
  EXPECT_EQ(count(text, "class=\"saved s0\""), 1u);
  EXPECT_EQ(count(text, "<title>start 2</title>"), 1u);
}

TEST(LinePlot, OfARunOfManyStepsStaysSmall) {
  LinePlot plot = small();
  plot.marks.clear();
  plot.curves[0].points.clear();
  for (int i = 0; i < 100'000; ++i) {
    plot.curves[0].points.emplace_back(i, std::sin(i));
    plot.marks.push_back({static_cast<double>(i), 0, Mark::Kind::checkpoint, "saved"});
  }
  EXPECT_LT(to_svg(plot).size(), 80'000u);
}

TEST(LinePlot, OfNothingHasAxesAlone) {
  LinePlot plot = small();
  plot.curves = {{"a", {}, 0, Curve::Style::line}};
  plot.marks.clear();
  EXPECT_EQ(tests::markup_problem(to_svg(plot)), "");
  EXPECT_EQ(count(to_svg(plot), "nan"), 0u);
}

TEST(LinePlot, KeepsItsRangeWhereOneRawValueJumps) {
  LinePlot plot = small();
  Points raw, smooth;
  for (int i = 0; i < 200; ++i) {
    raw.emplace_back(i, i == 100 ? 1e6 : 2 + i % 2);
    smooth.emplace_back(i, 2.5);
  }
  plot.curves = {{"", raw, 0, Curve::Style::faint}, {"a", smooth, 0, Curve::Style::line}};
  const auto points = points_of(to_svg(plot), "curve s0");
  ASSERT_GT(points.size(), 100u);
  EXPECT_LT(points[0].second, 200);  // in the middle, not at the foot
}

TEST(LayerPlot, StacksItsLayers) {
  const LayerPlot plot{
      .id = "t", .title = "t", .x = {1, 2}, .layers = {{"compute", {1, 1}}, {"wait", {2, 1}}}};
  const std::string text = to_svg(plot);
  EXPECT_EQ(tests::markup_problem(text), "") << text;
  const auto lower = points_of(text, "area f0"), upper = points_of(text, "area f1");
  ASSERT_EQ(lower.size(), 4u);
  ASSERT_EQ(upper.size(), 4u);
  EXPECT_EQ(upper[3], lower[0]);  // the second begins where the first ends
  EXPECT_NEAR((lower[3].second - upper[0].second) / (lower[3].second - lower[0].second), 3, 0.02);
  EXPECT_EQ(tests::markup_problem(to_svg_file(plot)), "");
}

TEST(RangePlot, DrawsFromTheLeastToTheLargest) {
  const RangePlot plot{"by rank",
                       {{"compute", 1, 2, 4, "1 to 4 s", 0}, {"data", 0.5, 0.5, 0.5, "0.5 s", 1}}};
  const std::string text = to_svg(plot);
  EXPECT_EQ(tests::markup_problem(text), "") << text;
  EXPECT_EQ(tests::markup_problem(to_svg_file(plot)), "");
  EXPECT_EQ(count(text, "class=\"span s0\""), 3u);
  EXPECT_EQ(count(text, "class=\"bar f1\""), 1u);
}

}  // namespace
}  // namespace finetune::plot
