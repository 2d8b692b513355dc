#pragma once
// SPDX-License-Identifier: Apache-2.0
// How the ranks are arranged: which share one copy of the model, and how many copies there are.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/layout/axes.hpp"
#include "plan/layout/settings.hpp"

namespace finetune::plan {

/// Ranks by axis; their product is the world.
struct Mesh {
  Sharding sharding = Sharding::full_shard;
  AxisSizes axes = {};
  /// Neighbours in fsdp that share the experts of each layer out; divides its size.
  std::int64_t ep = 1;
  Alone alone = Alone::keeps;

  std::int64_t size() const { return axes.size(); }
  std::int64_t size(const MeshGroup& group) const { return axes.size(group); }
  /// Whether ranks do more together than to keep and update weights.
  bool shares_computation() const { return axes[Axis::tp] * axes[Axis::cp] * ep > 1; }
  /// Whether the ranks of such a group do anything together.
  bool communicates(const MeshGroup& group) const {
    return size(group) > 1 || alone == Alone::communicates;
  }
};

/// Ranks of a job as the mesh sees them.
struct Ranks {
  std::int64_t world_size = 1;
  std::int64_t ranks_per_node = 1;  ///< the largest number on any node
  std::int64_t num_nodes = 1;
  bool is_even = true;  ///< every node has as many ranks
};

/// The mesh of `settings` on `ranks`; dp_replicate x dp_shard x cp x tp is the world. What follows
/// speaks of the ranks that cp and tp leave: a rank of theirs is a part of one.
///
/// Where neither is set, FULL_SHARD and SHARD_GRAD_OP split the model over all ranks, HYBRID_SHARD
/// over those of a node, NO_SHARD not at all. Where one is set, the other follows, and FULL_SHARD
/// and SHARD_GRAD_OP may have several copies too. Ranks that share a copy are neighbours in the
/// order of the nodes; a set dp_shard may let them lie on several nodes (see `warnings`).
/// Throws: ErrorKind::deck if they do not factor, naming sizes that would; `deck` is its path.
Mesh make_mesh(const ParallelSettings& settings, const Ranks& ranks,
               const std::string& deck = "parallel");

/// Whether they do.
bool is_mesh(const ParallelSettings& settings, const Ranks& ranks);

/// What a person may not have meant, a message each: copies of the model that lie across nodes
/// though there are several of them, and a HYBRID_SHARD that splits nothing.
std::vector<std::string> warnings(const Mesh& mesh, const Ranks& ranks);

}  // namespace finetune::plan
