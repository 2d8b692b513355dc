#pragma once
// SPDX-License-Identifier: Apache-2.0
// The fake's collectives: messages of MPI, on the thread of a stream, given up when asked.

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/dtype.hpp"

namespace finetune::fake {

/// The ranks of a communicator, by their rank in it, and tags that no other communicator uses.
struct Ranks {
  std::vector<int> in_world;
  int rank = 0;
  int first_tag = 0;
};

enum class Kind : std::int64_t { all_gather, reduce_scatter, all_reduce, messages };

/// What one rank sends or receives.
struct Message {
  enum class Way { out, in };
  Way way = Way::out;
  int peer = 0;
  void* memory = nullptr;
  std::int64_t bytes = 0;
};

/// Memory is read and written when it runs.
struct Collective {
  Kind kind = Kind::all_gather;
  const void* send = nullptr;
  void* receive = nullptr;
  std::int64_t count = 0;  ///< elements, as NCCL counts them
  core::DType dtype = core::DType::u8;
  std::int64_t sequence = 0;  ///< collectives of this communicator before it
  /// Those of a group, on their way at once: of the ranks they name alone.
  std::vector<Message> messages = {};

  std::int64_t sent_bytes(int num_ranks) const;
  std::int64_t received_bytes(int num_ranks) const;
  const char* name() const;
};

/// Polled while messages travel: true once nobody waits for them any more.
using IsGivenUp = std::function<bool()>;

/// Returns what differs over the ranks, in words; empty if nothing does, and if it was given up.
std::string run(const Collective& collective, const Ranks& ranks, const IsGivenUp& is_given_up);

/// Finds the ranks of the communicator that the rank `root` of MPI's world has numbered `number`:
/// each says which rank it will be there, and which device it has. False if it was given up.
/// Sets `problem` where two have one device.
bool meet(int root, int number, int rank, int size, int device, Ranks& ranks, std::string& problem,
          const IsGivenUp& is_given_up);

/// The messages' own communicator.
MPI_Comm messages();

}  // namespace finetune::fake
