#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which ranks of a group share a node, and who stands for whom on another one.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace finetune::comm {

/// Elements or bytes of rank `rank`'s part where parts of `part` cut `total`: the last parts may be
/// short or empty.
inline std::int64_t size_of_part(std::int64_t part, std::int64_t total, std::int64_t rank) {
  return std::clamp<std::int64_t>(total - rank * part, 0, part);
}

/// The ranks of a group on several nodes, several of them on at least one node. Ranks of a node
/// follow each other.
class NodeMap {
 public:
  /// `node_of_rank` numbers nodes in any way. Nothing where a second level would be of no use (one
  /// node, or one rank on each), or where ranks of a node do not follow each other.
  static std::optional<NodeMap> make(std::span<const std::int64_t> node_of_rank, int own_rank);

  int num_nodes() const { return static_cast<int>(first_.size()) - 1; }
  int num_ranks() const { return first_.back(); }
  /// Of this rank.
  int node() const { return node_; }
  int position() const { return position_; }

  int first(int node) const { return first_[static_cast<std::size_t>(node)]; }
  int ranks_on(int node) const { return first(node + 1) - first(node); }
  int most_on_a_node() const;
  int node_of(int rank) const;
  /// The rank on `node` through whose hands goes what belongs to `rank`; itself on its own node.
  int stand_in(int rank, int node) const;

 private:
  std::vector<int> first_;  ///< rank of each node, and the number of ranks
  int node_ = 0;
  int position_ = 0;
};

/// Whether sums may be added in any order without a change of bits: integers, not floating point.
enum class Order { fixed, any };

/// Messages from node to node that carry one element of every rank's part, over all parts: where
/// each rank sends its term to the part's rank, and where a running sum goes from node to node.
std::int64_t num_terms_between_nodes(const NodeMap& map);
std::int64_t num_sums_between_nodes(const NodeMap& map, Order order);

}  // namespace finetune::comm
