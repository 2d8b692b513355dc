// SPDX-License-Identifier: Apache-2.0
// Models side by side.
#include "tasks/results.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace finetune::tasks::results_test {
namespace {

Outcome shares(const std::string& model, std::vector<double> values) {
  Outcome outcome{.model = model, .task = "t", .judged = {}, .units = {}};
  for (const double value : values)
    outcome.judged.push_back({.values = {{"accuracy", value}}});
  return outcome;
}

TEST(Figures, CompareWithTheFirstModelOfATask) {
  const auto figures =
      figures_of({shares("base", {0, 0, 1, 0, 0, 0}), shares("tuned", {1, 1, 0, 1, 1, 1})});
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_TRUE(figures[0].is_first);
  EXPECT_EQ(figures[1].num_better, 5);
  EXPECT_EQ(figures[1].num_worse, 1);
  EXPECT_NEAR(figures[1].p, 2 * 7.0 / 64, 1e-12);
  const std::string table = table_of(figures);
  EXPECT_EQ(table.substr(0, table.find("Shares")),
            "task  metric    questions  base              tuned\n"
            "t     accuracy  6          16.7 [3.0, 56.4]  83.3 [43.6, 97.0] p = 0.219\n");
  const core::Json json = json_of(figures).at("figures").at(1);
  EXPECT_EQ(json.at("model"), "tuned");
  EXPECT_EQ(json.at("better"), 5);
  EXPECT_FALSE(json_of(figures).at("figures").at(0).contains("p"));
}

TEST(Figures, OfSharesStayBetweenNoneAndAll) {
  const auto low = figures_of({shares("m", {0.0, 0.18})}),
             high = figures_of({shares("m", {0.82, 1})});
  EXPECT_EQ(low[0].estimate.low, 0);
  EXPECT_NEAR(low[0].estimate.high, 0.09 + 1.96 * 0.09, 1e-4);
  EXPECT_NEAR(high[0].estimate.low, 0.91 - 1.96 * 0.09, 1e-4);
  EXPECT_EQ(high[0].estimate.high, 1);
}

TEST(Figures, OfTextsArePerplexities) {
  Outcome outcome{.model = "m", .task = "t", .judged = {}, .units = {{10, 5, 40}, {10, 5, 40}}};
  outcome.judged = {{.log_likelihood = -20}, {.log_likelihood = -20}};
  const auto figures = figures_of({outcome});
  ASSERT_EQ(figures.size(), 4u);
  EXPECT_NEAR(figures[0].estimate.mean, std::exp(2.0), 1e-9);
  EXPECT_NEAR(figures[1].estimate.mean, std::exp(4.0), 1e-9);
  EXPECT_NEAR(figures[3].estimate.mean, 0.5 / std::log(2.0), 1e-9) << "bits a byte";
  EXPECT_TRUE(figures[0].less_is_better);
}

}  // namespace
}  // namespace finetune::tasks::results_test
