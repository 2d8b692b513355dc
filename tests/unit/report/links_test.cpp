// SPDX-License-Identifier: Apache-2.0
// A link that became slow is found by looking at the report alone.
#include <gtest/gtest.h>

#include "metrics/records.hpp"
#include "report/page.hpp"
#include "report/pictures.hpp"
#include "report/screen.hpp"
#include "support/xml.hpp"
#include "unit/report/folder.hpp"

namespace finetune::report::links_test {
namespace {

/// Of eight nodes with a group for each two of them, rows as a run writes them.
class SlowLink : public tests::RunFolderFixture {
 protected:
  /// A row every ten seconds. From step 60 to step 80 the third group moves a fifth.
  void plant() {
    metrics::LinkWatch watch;
    std::string rows;
    for (std::int64_t step = 1; step <= 100; ++step) {
      std::vector<metrics::GroupRate> rates;
      for (int group = 0; group < 4; ++group) {
        const bool is_slow = group == 2 && step >= 60 && step <= 80;
        const double usual = 20e9 + 1e8 * static_cast<double>((step + group) % 7);
        rates.push_back({{"dp_replicate", group, 2, is_slow ? usual / 5 : usual},
                         "n" + std::to_string(2 * group) + ", n" + std::to_string(2 * group + 1)});
      }
      metrics::StepRecord row{.step = step, .loss = 1, .step_s = 10};
      row.links = watch.look(rates, 10.0 * static_cast<double>(step));
      rows += metrics::to_json(row) + "\n";
    }
    put("metrics.jsonl", rows);
  }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(SlowLink, IsNamedInThePageWithItsNodesAndSteps) {
  plant();
  const std::string text = page({read_reported(folder(), 0)}, 0, plot::Spacing::linear);
  EXPECT_EQ(tests::markup_problem(text), "");
  EXPECT_TRUE(has(text, ">Links<"));
  EXPECT_TRUE(has(text, "Links by axis, GB/s per rank (pale: the slowest group)"));
  EXPECT_TRUE(has(text, "Its links were slow on"));
  EXPECT_TRUE(has(text, "n4, n5"));
  EXPECT_TRUE(has(text, "65 to 80")) << "slow from 60 on, for a minute at 65";
  EXPECT_TRUE(has(text, "20.3 GB/s")) << "usual";
}

TEST_F(SlowLink, ShowsInThePicture) {
  plant();
  const RunHistory runs[] = {read_run(folder())};
  ASSERT_EQ(runs[0].links.size(), 100u);
  const auto found = pictures("links", runs);
  ASSERT_EQ(found.size(), 1u);
  const auto& plot = std::get<plot::LinePlot>(found[0]);
  ASSERT_EQ(plot.curves.size(), 2u);
  EXPECT_EQ(plot.curves[0].name, "dp_replicate");
  EXPECT_GT(plot.curves[0].points[69].second, 19) << "the median knows nothing of it";
  EXPECT_LT(plot.curves[1].points[69].second, 5);
}

TEST_F(SlowLink, IsOnTheScreenAsLongAsItIsSlow) {
  plant();
  RunHistory run = read_run(folder());
  const auto text = [&] {
    std::string all;
    for (const std::string& line : screen(run, {}, 0, {200, 40}, plot::Letters::ascii))
      all += line + "\n";
    return all;
  };
  EXPECT_TRUE(has(text(), "dp_replicate 20.")) << text();
  EXPECT_FALSE(has(text(), "slow: dp_replicate")) << text();
  run.links.resize(75);
  EXPECT_TRUE(has(text(), "slow: dp_replicate on n4, n5 (4")) << text();
}

}  // namespace
}  // namespace finetune::report::links_test
