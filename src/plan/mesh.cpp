// SPDX-License-Identifier: Apache-2.0
#include "plan/mesh.hpp"

#include "core/error.hpp"

namespace finetune::plan {
namespace {

Sharding sharding_of(const ParallelSettings& settings, const Ranks& ranks) {
  if (settings.sharding == "SHARD_GRAD_OP") return Sharding::shard_grad_op;
  if (settings.sharding == "HYBRID_SHARD") return Sharding::hybrid_shard;
  if (settings.sharding == "NO_SHARD") return Sharding::no_shard;
  const bool is_hybrid = settings.sharding == "AUTO" && ranks.num_nodes > 1 &&
                         ranks.ranks_per_node > 1 && ranks.is_even;
  return is_hybrid ? Sharding::hybrid_shard : Sharding::full_shard;
}

}  // namespace

Mesh make_mesh(const ParallelSettings& settings, const Ranks& ranks) {
  Mesh mesh{.sharding = sharding_of(settings, ranks)};
  mesh.dp_shard = settings.dp_shard;
  mesh.dp_replicate = settings.dp_replicate;
  if (mesh.dp_shard == 0 && mesh.dp_replicate != 0)
    mesh.dp_shard = ranks.world_size / mesh.dp_replicate;
  if (mesh.dp_shard == 0) {
    mesh.dp_shard = mesh.sharding == Sharding::hybrid_shard ? ranks.ranks_per_node
                    : mesh.sharding == Sharding::no_shard   ? 1
                                                            : ranks.world_size;
  }
  if (mesh.dp_replicate == 0) mesh.dp_replicate = ranks.world_size / mesh.dp_shard;
  core::check(mesh.size() == ranks.world_size, "the mesh fills the world");
  return mesh;
}

std::string to_string(Sharding sharding) {
  switch (sharding) {
    case Sharding::shard_grad_op:
      return "SHARD_GRAD_OP";
    case Sharding::hybrid_shard:
      return "HYBRID_SHARD";
    case Sharding::no_shard:
      return "NO_SHARD";
    default:
      return "FULL_SHARD";
  }
}

}  // namespace finetune::plan
