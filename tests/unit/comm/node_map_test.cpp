// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/node_map.hpp"

#include <gtest/gtest.h>

namespace finetune::comm::node_map_test {
namespace {

std::optional<NodeMap> map_of(std::vector<std::int64_t> node_of_rank, int own_rank = 0) {
  return NodeMap::make(node_of_rank, own_rank);
}

TEST(NodeMap, IsForSeveralNodesWithSeveralRanksOnOne) {
  EXPECT_FALSE(map_of({0}));
  EXPECT_FALSE(map_of({0, 0, 0})) << "one node";
  EXPECT_FALSE(map_of({0, 1, 2})) << "one rank on each";
  EXPECT_FALSE(map_of({0, 1, 0})) << "ranks of a node do not follow each other";
  EXPECT_TRUE(map_of({0, 0, 1}));
  EXPECT_TRUE(map_of({5, 2, 2})) << "a group may leave out nodes of its job";
}

TEST(NodeMap, KnowsWhereEachRankIs) {
  const NodeMap map = *map_of({7, 7, 7, 1, 4, 4}, 5);
  EXPECT_EQ(map.num_nodes(), 3);
  EXPECT_EQ(map.node(), 2);
  EXPECT_EQ(map.position(), 1);
  EXPECT_EQ(map.most_on_a_node(), 3);
  EXPECT_EQ(map.node_of(2), 0);
  EXPECT_EQ(map.node_of(3), 1);
  EXPECT_EQ(map.ranks_on(2), 2);
}

TEST(NodeMap, RanksOfANodeShareTheWorkForThoseOfAnother) {
  const NodeMap map = *map_of({0, 0, 0, 1, 2, 2});
  EXPECT_EQ(map.stand_in(0, 2), 4);
  EXPECT_EQ(map.stand_in(1, 2), 5);
  EXPECT_EQ(map.stand_in(2, 2), 4) << "round again";
  EXPECT_EQ(map.stand_in(2, 1), 3);
  EXPECT_EQ(map.stand_in(5, 2), 5) << "itself on its own node";
}

/// Eight ranks on each of four nodes: a term of each to each of the 24 elsewhere, or a sum that
/// visits every node.
TEST(NodeMap, CountsWhatPassesBetweenNodes) {
  std::vector<std::int64_t> nodes(32);
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    nodes[rank] = static_cast<std::int64_t>(rank / 8);
  const NodeMap map = *map_of(nodes);
  EXPECT_EQ(num_terms_between_nodes(map), 32 * 24);
  EXPECT_EQ(num_sums_between_nodes(map, Order::fixed), 32 * 4);
  EXPECT_EQ(num_sums_between_nodes(map, Order::any), 32 * 3);
}

TEST(NodeMap, TheLastPartsMayBeShort) {
  EXPECT_EQ(size_of_part(3, 7, 0), 3);
  EXPECT_EQ(size_of_part(3, 7, 2), 1);
  EXPECT_EQ(size_of_part(3, 7, 3), 0);
}

}  // namespace
}  // namespace finetune::comm::node_map_test
