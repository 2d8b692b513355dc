// SPDX-License-Identifier: Apache-2.0
#include "plan/machine/group_shape.hpp"

#include <algorithm>
#include <numeric>

namespace finetune::plan {
namespace {

/// `size` ranks that are `stride` apart: ranks of other groups lie between those of this one, and
/// all of these groups together fill a block of ranks that follow each other.
struct Spacing {
  std::int64_t size = 1;
  std::int64_t stride = 1;

  std::int64_t block() const { return size * stride; }
};

/// The last place on a node at which the first rank of a group lies.
std::int64_t latest_begin(const Spacing& of, const Ranks& ranks) {
  const std::int64_t node = ranks.ranks_per_node;
  const std::int64_t num_blocks = std::max<std::int64_t>(1, ranks.world_size / of.block());
  // Blocks begin at the same places again after so many.
  const std::int64_t different = std::min(num_blocks, node / std::gcd(of.block(), node));
  std::int64_t latest = 0;
  for (std::int64_t i = 0; i < different; ++i)
    latest = std::max(latest, i * of.block() % node);
  return std::min(latest + std::min(of.stride, of.block()) - 1, node - 1);
}

std::int64_t spanned_nodes(const Spacing& of, const Ranks& ranks) {
  if (of.stride >= ranks.ranks_per_node) return std::min(of.size, ranks.num_nodes);
  const std::int64_t span = (of.size - 1) * of.stride;
  return std::min((latest_begin(of, ranks) + span) / ranks.ranks_per_node + 1, ranks.num_nodes);
}

/// Whether as many blocks fill each node, or as many nodes each block.
bool is_even(const Spacing& of, const Ranks& ranks) {
  return of.block() % ranks.ranks_per_node == 0 || ranks.ranks_per_node % of.block() == 0;
}

GroupShape shape_of(const Spacing& of, const Ranks& ranks) {
  GroupShape shape{.size = of.size, .num_nodes = spanned_nodes(of, ranks)};
  const std::int64_t across = std::min(of.stride, ranks.ranks_per_node);
  if (shape.num_nodes == 1 || is_even(of, ranks)) {
    shape.groups_per_node = across * std::max<std::int64_t>(1, ranks.ranks_per_node / of.block());
  } else {
    // Blocks lie across both ends of a node, of two nodes across the one between them.
    shape.groups_per_node =
        std::min(ranks.num_nodes > 2 ? 2 * across : across, ranks.ranks_per_node);
  }
  return shape;
}

}  // namespace

GroupShape shape_of(const MeshGroup& group, const Mesh& mesh, const Ranks& ranks) {
  return shape_of(Spacing{mesh.size(group), mesh.axes.stride(group)}, ranks);
}

GroupShape shape_of_experts(const Mesh& mesh, const Ranks& ranks) {
  return shape_of(Spacing{mesh.ep, mesh.axes.stride(groups::fsdp)}, ranks);
}

GroupShape shape_of_expert_shards(const Mesh& mesh, const Ranks& ranks) {
  return shape_of(
      Spacing{mesh.size(groups::fsdp) / mesh.ep, mesh.axes.stride(groups::fsdp) * mesh.ep}, ranks);
}

}  // namespace finetune::plan
