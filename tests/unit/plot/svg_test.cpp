// SPDX-License-Identifier: Apache-2.0
#include "plot/svg.hpp"

#include <gtest/gtest.h>

#include "support/xml.hpp"

namespace finetune::plot {
namespace {

TEST(Escaped, LeavesNothingThatMarkupMeans) {
  EXPECT_EQ(escaped("<a href=\"x\">'&'</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escaped("a\x1b[31m\x01\n"), "a[31m\n");
  EXPECT_EQ(escaped("Grüße"), "Grüße");
  EXPECT_EQ(escaped("\xff"), "\\xff");
}

TEST(Svg, OfEveryElementIsWellFormed) {
  Svg svg;
  svg.begin_note("\"<note>\" & more");
  svg.line(0, 0, 1.25, -0.01, "grid");
  svg.end_note();
  svg.begin_clip("clip\"1", 0, 0, 10, 10);
  svg.text(1, 2, Svg::Align::end, "name", "</text><script>");
  svg.text_upwards(1, 2, "name", "a & b");
  svg.rectangle(0, 0, 5, 5, "paper");
  svg.circle(1, 1, 2, "dot f0");
  svg.polyline({{0, 1}, {2, 3}}, "curve s0");
  svg.polygon({{0, 1}, {2, 3}, {4, 5}}, "area f1");
  svg.end_clip();
  for (const std::string& text :
       {svg.inline_text(100, 50, "a \"plot\""), svg.file_text(100, 50, "a <plot>")}) {
    EXPECT_EQ(tests::markup_problem(text), "") << text;
    EXPECT_EQ(text.find("<script"), std::string::npos);
    EXPECT_NE(text.find("y2=\"0\""), std::string::npos);
  }
}

TEST(Svg, OfAFileNeedsNoVariables) {
  const std::string text = Svg().file_text(10, 10, "x");
  EXPECT_EQ(text.find("var("), std::string::npos);
  EXPECT_EQ(text.find("@media"), std::string::npos);
  EXPECT_NE(text.find(".s0{stroke:#1f5fbf}"), std::string::npos);
}

TEST(MarkupProblem, IsFound) {
  EXPECT_EQ(tests::markup_problem("<a><b/></a>"), "");
  for (const char* bad : {"<a>", "<a></b>", "<a>&</a>", "<a x=1></a>", "<a x=\"1></a>", "<a",
                          "<a x=\"1\" x=\"2\"></a>", "text", "<a>1 > 0</a>", "<a></a></a>"})
    EXPECT_NE(tests::markup_problem(bad), "") << bad;
}

}  // namespace
}  // namespace finetune::plot
