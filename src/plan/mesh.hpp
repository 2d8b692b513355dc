#pragma once
// SPDX-License-Identifier: Apache-2.0
// How the ranks are arranged: which share one copy of the model, and how many copies there are.

#include <cstdint>
#include <string>

#include "plan/settings.hpp"

namespace finetune::plan {

enum class Sharding { full_shard, shard_grad_op, hybrid_shard, no_shard };

/// Ranks by axis; their product is the world.
struct Mesh {
  Sharding sharding = Sharding::full_shard;
  std::int64_t dp_replicate = 1;
  std::int64_t dp_shard = 1;
  std::int64_t cp = 1;
  std::int64_t tp = 1;

  std::int64_t size() const { return dp_replicate * dp_shard * cp * tp; }
  std::int64_t data_ranks() const { return dp_replicate * dp_shard; }
};

/// Ranks of a job as the mesh sees them.
struct Ranks {
  std::int64_t world_size = 1;
  std::int64_t ranks_per_node = 1;  ///< the largest number on any node
  std::int64_t num_nodes = 1;
  bool is_even = true;  ///< every node has as many ranks
};

/// The mesh of `settings` on `ranks`.
/// Throws: ErrorKind::deck if they do not factor, naming sizes that would.
Mesh make_mesh(const ParallelSettings& settings, const Ranks& ranks);

std::string to_string(Sharding sharding);

}  // namespace finetune::plan
