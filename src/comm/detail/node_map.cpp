// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/node_map.hpp"

#include <set>

namespace finetune::comm {

std::optional<NodeMap> NodeMap::make(std::span<const std::int64_t> node_of_rank, int own_rank) {
  NodeMap map;
  std::set<std::int64_t> seen;
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    if (rank > 0 && node_of_rank[rank] == node_of_rank[rank - 1]) continue;
    if (!seen.insert(node_of_rank[rank]).second) return std::nullopt;
    map.first_.push_back(static_cast<int>(rank));
  }
  map.first_.push_back(static_cast<int>(node_of_rank.size()));
  const bool is_one_each = map.num_nodes() == map.num_ranks();
  if (map.num_nodes() < 2 || is_one_each) return std::nullopt;
  map.node_ = map.node_of(own_rank);
  map.position_ = own_rank - map.first(map.node_);
  return map;
}

int NodeMap::most_on_a_node() const {
  int most = 0;
  for (int node = 0; node < num_nodes(); ++node)
    most = std::max(most, ranks_on(node));
  return most;
}

int NodeMap::node_of(int rank) const {
  const auto next = std::upper_bound(first_.begin(), first_.end(), rank);
  return static_cast<int>(next - first_.begin()) - 1;
}

int NodeMap::stand_in(int rank, int node) const {
  const int position = rank - first(node_of(rank));
  return first(node) + position % ranks_on(node);
}

std::int64_t num_terms_between_nodes(const NodeMap& map) {
  std::int64_t terms = 0;
  for (int node = 0; node < map.num_nodes(); ++node)
    terms += std::int64_t{map.ranks_on(node)} * (map.num_ranks() - map.ranks_on(node));
  return terms;
}

std::int64_t num_sums_between_nodes(const NodeMap& map, Order order) {
  // A sum in fixed order begins on its part's node, and ends there.
  const std::int64_t hops = order == Order::fixed ? map.num_nodes() : map.num_nodes() - 1;
  return hops * map.num_ranks();
}

}  // namespace finetune::comm
