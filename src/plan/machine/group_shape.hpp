#pragma once
// SPDX-License-Identifier: Apache-2.0
// How groups of ranks lie on nodes.

#include <cstdint>

#include "plan/layout/mesh.hpp"

namespace finetune::plan {

/// Ranks that communicate, and how many such groups do so at the same time over a node's links.
struct GroupShape {
  std::int64_t size = 1;
  std::int64_t num_nodes = 1;
  std::int64_t groups_per_node = 1;

  double ranks_per_node() const {
    return static_cast<double>(size) / static_cast<double>(num_nodes);
  }
};

/// Of a group whose axes follow each other in the mesh. Where groups do not divide the ranks of a
/// node, some lie on more nodes than others: the shape is that of those on the most, for which the
/// others wait.
GroupShape shape_of(const MeshGroup& group, const Mesh& mesh, const Ranks& ranks);

/// The ranks that share the experts of a layer, and those that hold shards of the same experts.
GroupShape shape_of_experts(const Mesh& mesh, const Ranks& ranks);
GroupShape shape_of_expert_shards(const Mesh& mesh, const Ranks& ranks);

}  // namespace finetune::plan
