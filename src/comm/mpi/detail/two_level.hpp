#pragma once
// SPDX-License-Identifier: Apache-2.0
// Collectives in two levels, messages between nodes and shared memory inside.

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/detail/node_map.hpp"
#include "comm/mpi/detail/pairwise.hpp"
#include "comm/mpi/detail/shared_window.hpp"

namespace finetune::comm {

/// Bytes of a half of a rank's slice: large enough for full bandwidth, also where each of many
/// nodes has its piece in it, small enough for the shared memory of a container. plan::memory
/// counts it.
std::int64_t window_half_bytes(int num_nodes);

/// What a collective moves, by one rank.
struct Moved {
  std::int64_t between_nodes = 0;  ///< bytes sent to other nodes
  std::int64_t inside = 0;         ///< bytes laid into the window of its own node
};

/// Collectives of the ranks of a map, all of them in one order.
///
/// A gather sends each part once to each other node, to the rank that stands in for its owner
/// there, into the window from which all ranks of the node read it.
///
/// A sum goes from node to node (chain.hpp).
class TwoLevel {
 public:
  TwoLevel(NodeMap map, std::unique_ptr<SharedWindow> window);

  /// Collective on the ranks of the map. An exception leaves the window behind for good.
  void gather(const PointToPoint& messages, const Parts& parts);
  void exchange(const PointToPoint& messages, const Exchange& exchange);

  Moved moved_by_gather(const Parts& parts, int rank) const;
  Moved moved_by_exchange(const Exchange& exchange, int rank) const;

  const NodeMap& map() const { return map_; }

 private:
  class Gather;

  NodeMap map_;
  std::unique_ptr<SharedWindow> window_;
  std::vector<std::vector<int>> represented_;  ///< by position on this node: ranks of other nodes
  std::int64_t most_slots_;
};

}  // namespace finetune::comm
