// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/broadcast.hpp"

#include <algorithm>
#include <map>

#include "comm/detail/waiting.hpp"

namespace finetune::comm {

void broadcast_pieces(MPI_Comm comm, std::span<std::byte> bytes, int root) {
  if (bytes.size() <= short_broadcast_bytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(
        MPI_Ibcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, root, comm, &request),
        "MPI_Ibcast");
    finish(request, "MPI_Ibcast");
    return;
  }
  constexpr std::size_t piece = std::size_t{1} << 30;
  arrive(comm);
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), piece);
    check_mpi(MPI_Bcast(bytes.data(), static_cast<int>(n), MPI_BYTE, root, comm), "MPI_Bcast");
    bytes = bytes.subspan(n);
  }
}

std::unique_ptr<BroadcastLevels> BroadcastLevels::make(MPI_Comm comm, int node) {
  int rank = 0, size = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  std::vector<int> nodes(static_cast<std::size_t>(size));
  arrive(comm);
  check_mpi(MPI_Allgather(&node, 1, MPI_INT, nodes.data(), 1, MPI_INT, comm), "MPI_Allgather");
  std::map<int, int> index_of_node;
  std::unique_ptr<BroadcastLevels> levels(new BroadcastLevels);
  for (const int other : nodes) {
    const auto found = index_of_node.try_emplace(other, static_cast<int>(index_of_node.size()));
    levels->index_of_rank_.push_back(found.first->second);
  }
  if (index_of_node.size() == 1 || index_of_node.size() == nodes.size()) return nullptr;
  levels->own_index_ = index_of_node.at(node);
  check_mpi(MPI_Comm_split(comm, node, rank, &levels->node_), "MPI_Comm_split");
  int position = 0;
  check_mpi(MPI_Comm_rank(levels->node_, &position), "MPI_Comm_rank");
  check_mpi(MPI_Comm_split(comm, position == 0 ? 0 : MPI_UNDEFINED, rank, &levels->leaders_),
            "MPI_Comm_split");
  return levels;
}

BroadcastLevels::~BroadcastLevels() {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (is_finalized != 0) return;
  for (MPI_Comm* comm : {&node_, &leaders_})
    if (*comm != MPI_COMM_NULL) MPI_Comm_free(comm);
}

void BroadcastLevels::broadcast(std::span<std::byte> bytes, int root) const {
  const int index = index_of_rank_[static_cast<std::size_t>(root)];
  if (index == own_index_) {
    const auto first = index_of_rank_.begin();
    const auto position = std::count(first, first + root, index);
    broadcast_pieces(node_, bytes, static_cast<int>(position));
  }
  if (leaders_ != MPI_COMM_NULL) broadcast_pieces(leaders_, bytes, index);
  if (index != own_index_) broadcast_pieces(node_, bytes, 0);
}

}  // namespace finetune::comm
