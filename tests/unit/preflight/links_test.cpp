// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/links.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "jobs.hpp"

namespace finetune::preflight::links_test {
namespace {

std::vector<std::string> names(int num_nodes) {
  std::vector<std::string> all;
  for (int i = 0; i < num_nodes; ++i)
    all.push_back("n" + std::to_string(i));
  return all;
}

/// The links that would be measured, with what `rate` says of each.
std::vector<Link> links_of(int num_nodes, const std::function<double(int from, int to)>& rate) {
  std::vector<Link> links;
  for (const int distance : distances(num_nodes)) {
    for (int to = 0; to < num_nodes; ++to) {
      const int from = (to - distance + num_nodes) % num_nodes;
      links.push_back({from, to, rate(from, to), 5});
    }
  }
  return links;
}

TEST(Distances, OfAFewNodesMakeAMatrixAndOfManyGrowWithTheLogarithm) {
  EXPECT_EQ(distances(1), std::vector<int>());
  EXPECT_EQ(distances(4), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(distances(1000).size(), 10u);
  EXPECT_EQ(distances(10000).size(), 14u);
}

TEST(Links, ThatAreFastAreGood) {
  const Finding finding = judge_links(names(4), links_of(4, [](int, int) { return 180; }), 10);
  EXPECT_EQ(finding.grade(), Grade::good);
  EXPECT_TRUE(holds(finding.details, "180 (5)")) << finding.details;
}

TEST(Links, BelowWhatIsRecommendedAreWarnedOfOnce) {
  const Finding finding = judge_links(names(4), links_of(4, [](int, int) { return 25; }), 10);
  EXPECT_EQ(finding.problems.size(), 1u);
  EXPECT_EQ(finding.grade(), Grade::warning);
}

TEST(Links, OfOneSlowNodeAmongAThousandNameIt) {
  const auto links =
      links_of(1000, [](int from, int to) { return from == 613 || to == 613 ? 9.0 : 200.0; });
  const Finding finding = judge_links(names(1000), links, 10);
  ASSERT_EQ(finding.problems.size(), 1u) << first_line(finding);
  EXPECT_EQ(finding.grade(), Grade::bad);
  EXPECT_TRUE(
      holds(first_line(finding), "n613: its links reach 9 Gbit/s (those of other nodes 200)"))
      << first_line(finding);
  EXPECT_EQ(finding.details, "") << "no matrix of a thousand nodes";
}

TEST(Links, OfWhichOneIsSlowNameIt) {
  const auto links =
      links_of(16, [](int from, int to) { return from == 3 && to == 4 ? 40.0 : 200.0; });
  const Finding finding = judge_links(names(16), links, 10);
  ASSERT_EQ(finding.problems.size(), 1u);
  EXPECT_EQ(finding.grade(), Grade::warning);
  EXPECT_TRUE(holds(first_line(finding), "n3 -> n4: the link reaches 40 Gbit/s"))
      << first_line(finding);
}

TEST(Links, BetweenTwoNodesBelowTheLeastAreBad) {
  const Finding finding = judge_links(names(2), links_of(2, [](int, int) { return 0.95; }), 10);
  EXPECT_EQ(finding.problems.size(), 2u);
  EXPECT_EQ(finding.grade(), Grade::bad);
  EXPECT_TRUE(holds(first_line(finding), "n1 -> n0: the link reaches 0.95 Gbit/s"))
      << first_line(finding);
  EXPECT_EQ(judge_links(names(2), links_of(2, [](int, int) { return 0.95; }), 0.5).grade(),
            Grade::warning);
}

TEST(Links, OfASlowNetworkThatIsHealthyPassWhereTheDeckAsksForNothing) {
  for (const int num_nodes : {2, 16}) {
    const Finding finding =
        judge_links(names(num_nodes), links_of(num_nodes, [](int, int) { return 0.94; }), 0);
    EXPECT_EQ(finding.grade(), Grade::warning) << num_nodes;
    EXPECT_EQ(finding.problems.size(), 1u);
    EXPECT_TRUE(holds(first_line(finding), "parallel.min_link_gbit_per_s")) << first_line(finding);
  }
}

TEST(Links, FarBelowTheMedianAreBadWhereTheDeckAsksForNothing) {
  const auto with_link = [](double rate) {
    return judge_links(
        names(8),
        links_of(8, [&](int from, int to) { return from == 3 && to == 4 ? rate : 100.0; }), 0);
  };
  const Finding broken = with_link(19);
  EXPECT_EQ(broken.grade(), Grade::bad);
  EXPECT_TRUE(holds(first_line(broken), "n3 -> n4: the link reaches 19 Gbit/s (other links 100)"))
      << first_line(broken);
  EXPECT_TRUE(holds(first_line(broken), "parallel.min_link_gbit_per_s")) << first_line(broken);
  EXPECT_EQ(with_link(21).grade(), Grade::warning);
  EXPECT_EQ(with_link(60).grade(), Grade::good);
}

TEST(Links, OfTwoNodesHaveNoMedianToBeComparedWith) {
  const auto links = links_of(2, [](int from, int) { return from == 0 ? 10.0 : 1.0; });
  EXPECT_EQ(judge_links(names(2), links, 0).grade(), Grade::warning);
  EXPECT_EQ(judge_links(names(2), links, 2).grade(), Grade::bad);
}

TEST(Links, OfOneNodeAreNoProblem) {
  EXPECT_EQ(judge_links(names(1), {}, 10).grade(), Grade::good);
}

}  // namespace
}  // namespace finetune::preflight::links_test
