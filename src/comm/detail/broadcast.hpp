#pragma once
// SPDX-License-Identifier: Apache-2.0
// Broadcasts of many bytes, which cross to each other node once.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/mpi/detail/mpi.hpp"

namespace finetune::comm {

/// What is shorter goes by one MPI_Bcast: its time is latency.
inline constexpr std::size_t short_broadcast_bytes = 32 * 1024;

/// MPI_Bcast of any number of bytes, in pieces that MPI can count.
void broadcast_pieces(MPI_Comm comm, std::span<std::byte> bytes, int root);

/// Communicators inside nodes and between them. MPI_Bcast over ranks of several nodes may send the
/// same bytes to a node once for each of its ranks (Open MPI 4.1 does).
class BroadcastLevels {
 public:
  /// Nothing where all ranks are on one node, or each on one of its own. Collective on `comm`;
  /// `node` numbers this rank's node.
  static std::unique_ptr<BroadcastLevels> make(MPI_Comm comm, int node);
  ~BroadcastLevels();
  BroadcastLevels(const BroadcastLevels&) = delete;
  BroadcastLevels& operator=(const BroadcastLevels&) = delete;

  /// From the root to its node, from there to a rank of each other node, and to the others there.
  /// Collective on the communicator that this was made of.
  void broadcast(std::span<std::byte> bytes, int root) const;

 private:
  BroadcastLevels() = default;

  MPI_Comm node_ = MPI_COMM_NULL;
  MPI_Comm leaders_ = MPI_COMM_NULL;  ///< the first rank of each node, in the order of nodes
  int own_index_ = 0;
  std::vector<int> index_of_rank_;  ///< of its node, by first appearance
};

}  // namespace finetune::comm
