// SPDX-License-Identifier: Apache-2.0
#include "plan/time/scaling.hpp"

#include <gtest/gtest.h>

#include <regex>

#include "plan/time/scaling_plot.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::scaling_test {
namespace {

using tests::two_blocks;

PlanInput request(std::int64_t nodes) {
  PlanInput request = tests::adamw_request();
  request.architecture = tests::architecture_of(tests::two_blocks);
  request.on_gpu = true;
  request.ranks = tests::ranks_on_nodes(2 * nodes, 2);
  request.max_seq_length = 32;
  request.global_batch = 16 * nodes;
  return request;
}

std::vector<ScalingRow> rows(std::int64_t nodes, Scaling scaling,
                             std::int64_t available_bytes = 0) {
  const PlanInput r = request(nodes);
  const tests::DecoderTable table(r.architecture);
  return scale(r, table.table(), {tests::round_machine(), Passes::fused, available_bytes}, scaling);
}

std::vector<std::int64_t> nodes_of(const std::vector<ScalingRow>& rows) {
  std::vector<std::int64_t> nodes;
  for (const ScalingRow& row : rows)
    nodes.push_back(row.num_nodes);
  return nodes;
}

TEST(ScalingTable, HasPowersOfTwoAndTheNodesAskedFor) {
  EXPECT_EQ(nodes_of(rows(1, Scaling::weak)), (std::vector<std::int64_t>{1, 2, 4}));
  EXPECT_EQ(nodes_of(rows(3, Scaling::strong)), (std::vector<std::int64_t>{1, 2, 3, 4, 8}));
}

TEST(ScalingTable, StaysOnOneNodeWhereTheNetworkIsNotKnown) {
  const PlanInput r = request(1);
  const tests::DecoderTable table(r.architecture);
  Machine machine = tests::round_machine();
  machine.inter_gb_per_s = 0;
  const auto weak = scale(r, table.table(), {machine, Passes::fused, 0}, Scaling::weak);
  EXPECT_EQ(nodes_of(weak), std::vector<std::int64_t>{1});
  EXPECT_FALSE(plot_scaling("one point", weak, weak).empty());
}

TEST(ScalingTable, WeakGrowsTheBatchAndStrongKeepsIt) {
  for (const ScalingRow& row : rows(2, Scaling::weak))
    EXPECT_EQ(row.global_batch, 16 * row.num_nodes);
  for (const ScalingRow& row : rows(2, Scaling::strong))
    EXPECT_EQ(row.global_batch, 32);
}

TEST(ScalingTable, MakesMicroBatchesSmallerBeforeRanksHaveNone) {
  PlanInput r = request(1);
  r.global_batch = r.micro_batch = 4;
  const tests::DecoderTable table(r.architecture);
  const auto strong =
      scale(r, table.table(), {tests::round_machine(), Passes::fused, 0}, Scaling::strong);
  EXPECT_EQ(strong[0].strategy.request.micro_batch, 2) << "two ranks";
  EXPECT_EQ(strong[1].strategy.request.micro_batch, 1);
  EXPECT_EQ(strong[2].strategy.request.micro_batch, 1) << "four ranks have none";
}

TEST(ScalingTable, OfWeakScalingLeavesOutNodesWhoseRanksHaveNothingToDo) {
  PlanInput r = request(4);
  r.global_batch = 4;
  const tests::DecoderTable table(r.architecture);
  const Site site = {tests::round_machine(), Passes::fused, 0};
  const auto weak = scale(r, table.table(), site, Scaling::weak);
  EXPECT_EQ(nodes_of(weak), std::vector<std::int64_t>{4}) << "eight ranks, four sequences";
  EXPECT_TRUE(weak.front().has_idle_ranks);
  const auto strong = scale(r, table.table(), site, Scaling::strong);
  EXPECT_FALSE(strong[1].has_idle_ranks);
  EXPECT_TRUE(strong[2].has_idle_ranks);
  const std::string svg = plot_scaling("idle", weak, strong);
  EXPECT_EQ(svg.find("=\"-"), std::string::npos) << "a point outside of the canvas: " << svg;
}

TEST(ScalingTable, EfficiencyIsThatOfARankBesideTheFirstRow) {
  const auto weak = rows(4, Scaling::weak), strong = rows(4, Scaling::strong);
  EXPECT_EQ(weak.front().efficiency, 1);
  EXPECT_LT(weak.back().efficiency, 1) << "the network is slower than the node";
  EXPECT_LT(strong.back().efficiency, weak.back().efficiency) << "less to hide behind";
  const TimePlan &first = strong.front().strategy.time, &last = strong.back().strategy.time;
  EXPECT_NEAR(strong.back().efficiency,
              last.tokens_per_s / first.tokens_per_s / static_cast<double>(strong.back().num_nodes),
              1e-9);
}

TEST(ScalingTable, LeavesOutNodesWhereNothingFits) {
  const auto all = rows(4, Scaling::weak);
  // With what sixteen nodes need at least, one node cannot hold the model.
  std::int64_t least = all.front().strategy.memory_bytes;
  PlanInput r = request(16);
  r.parallel.sharding = sharding_named("FULL_SHARD");
  const tests::DecoderTable table(r.architecture);
  least = std::min(least, make(r, table.table()).memory_bytes());
  const auto some = rows(4, Scaling::weak, least + 1);
  ASSERT_FALSE(some.empty());
  EXPECT_GT(some.front().num_nodes, 1);
  EXPECT_EQ(some.front().efficiency, 1);
}

TEST(ScalingTable, OfTheLargestJobsIsMade) {
  EXPECT_EQ(rows(50'000, Scaling::weak).size(), 19U);
}

/// Tags are closed in the order they were opened.
bool is_well_formed(const std::string& xml) {
  static const std::regex tag("<(/?)([a-z]+)((?: [a-zA-Z0-9-]+=\"[^\"<]*\")*)(/?)>");
  std::vector<std::string> open;
  std::string rest = xml;
  for (std::smatch match; std::regex_search(rest, match, tag); rest = match.suffix()) {
    if (match.prefix().str().find_first_of("<>") != std::string::npos) return false;
    if (match[4].length() > 0) continue;
    if (match[1].length() == 0) {
      open.push_back(match[2]);
    } else {
      if (open.empty() || open.back() != match[2]) return false;
      open.pop_back();
    }
  }
  return open.empty() && rest.find_first_of("<>") == std::string::npos;
}

TEST(ScalingPlot, IsWellFormedAndInsideItsCanvas) {
  for (const std::int64_t nodes : {1, 3, 1000}) {
    const std::string svg = plot_scaling("a <model> & \"b\" on 8\x01 GPUs",
                                         rows(nodes, Scaling::weak), rows(nodes, Scaling::strong));
    EXPECT_TRUE(is_well_formed(svg)) << svg;
    static const std::regex place("(x|y|cx|cy|x1|x2|y1|y2)=\"(-?[0-9.naif]+)\"");
    int num = 0;
    for (std::sregex_iterator it(svg.begin(), svg.end(), place), end; it != end; ++it, ++num) {
      const double value = std::stod((*it)[2]);
      EXPECT_GE(value, 0) << it->str();
      EXPECT_LE(value, (*it)[1].str().find('x') != std::string::npos ? 760 : 460) << it->str();
    }
    EXPECT_GT(num, 20);
    const std::regex point("<circle");
    EXPECT_EQ(std::distance(std::sregex_iterator(svg.begin(), svg.end(), point), {}),
              static_cast<std::ptrdiff_t>(2 * nodes_of(rows(nodes, Scaling::weak)).size()));
  }
}

TEST(ScalingPlot, NotesTheEfficiencyAtEachPoint) {
  const auto weak = rows(4, Scaling::weak);
  const std::string svg = plot_scaling("title", weak, rows(4, Scaling::strong));
  EXPECT_NE(svg.find(">100 %<"), std::string::npos);
  EXPECT_NE(
      svg.find(">" + std::to_string(static_cast<int>(100 * weak.back().efficiency + 0.5)) + " %<"),
      std::string::npos);
  EXPECT_NE(svg.find("stroke-dasharray"), std::string::npos) << "the ideal line";
}

TEST(ScalingPlot, SmallFiles) {
  EXPECT_LT(plot_scaling("t", rows(1, Scaling::weak), rows(1, Scaling::strong)).size(), 16'000U);
}

}  // namespace
}  // namespace finetune::plan::scaling_test
