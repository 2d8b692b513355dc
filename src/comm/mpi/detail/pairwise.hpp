#pragma once
// SPDX-License-Identifier: Apache-2.0
// Collectives in one level, a message from each rank to each other one.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/group.hpp"
#include "comm/mpi/detail/point_to_point.hpp"

namespace finetune::comm {

/// Every rank has its part of `whole`, and gets all others.
struct Parts {
  std::byte* whole = nullptr;
  std::int64_t part_bytes = 0;   ///< of a rank; see size_of_part
  std::int64_t total_bytes = 0;  ///< of all ranks
};

/// Every rank has bytes for each other one, one part after the other, and gets such from them.
class Swap {
 public:
  Swap(const std::byte* send, std::span<const std::int64_t> send_bytes, std::byte* recv,
       std::span<const std::int64_t> recv_bytes);

  /// Throws ErrorKind::bug for what cannot be of that rank.
  void check(int rank, int num_ranks) const;

  std::span<const std::byte> to(int rank) const { return out_[static_cast<std::size_t>(rank)]; }
  std::span<std::byte> from(int rank) const { return in_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::span<const std::byte>> out_;
  std::vector<std::span<std::byte>> in_;
};

/// In round s a rank sends to the rank s after it and receives from the rank s before it. Each byte
/// is sent once to each rank, and what waits for a message sleeps instead of taking a core from the
/// computation.
/// Source: Thakur, Rabenseifner & Gropp 2005, Optimization of Collective Communication Operations
/// in MPICH (pairwise exchange for long messages).
///
/// Collective on the ranks of `messages`.
void gather_pairwise(const PointToPoint& messages, const Parts& parts);

/// Terms are added in this order: this rank's own, then those of the rank before it, and so on
/// around. Collective on the ranks of `messages`.
void exchange_pairwise(const PointToPoint& messages, const Exchange& exchange);

/// All messages are on their way at once, and there is none of no bytes: a rank waits only for
/// those that have something for it. Collective on the ranks of `messages`.
void swap_pairwise(const PointToPoint& messages, const Swap& swap);

}  // namespace finetune::comm
