#pragma once
// SPDX-License-Identifier: Apache-2.0
// The ranks of a test as a mesh.

#include <vector>

#include "world/world.hpp"

namespace finetune::tests {

/// What ranks share besides the model's copies.
struct Parts {
  int cp = 1;
  int tp = 1;
  int ep = 1;
};

/// `all` as size / (dp_shard cp tp) copies of the model; with dp_shard 0 as one. Collective on
/// `all`.
inline world::World mesh_of(const comm::Communicator& all, int dp_shard, const Parts& parts = {}) {
  if (dp_shard == 0) dp_shard = all.size() / (parts.cp * parts.tp);
  plan::AxisSizes axes;
  axes[plan::Axis::tp] = parts.tp;
  axes[plan::Axis::cp] = parts.cp;
  axes[plan::Axis::dp_shard] = dp_shard;
  axes[plan::Axis::dp_replicate] = all.size() / (dp_shard * parts.cp * parts.tp);
  const auto split = [&](const plan::MeshGroup& group) {
    const auto place = axes.place(group, all.rank());
    return all.split(static_cast<int>(place.group), all.rank(), group.name);
  };
  world::World world;
  world.world = all;
  world.batch = split(plan::groups::batch);
  world.loss = split(plan::groups::loss);
  world.fsdp = world.expert_fsdp = split(plan::groups::fsdp);
  world.dp_replicate = split(plan::groups::dp_replicate);
  world.cp = split(plan::groups::cp);
  world.tp = split(plan::groups::tp);
  if (parts.ep == 1) return world;
  world.ep = world.fsdp.split(world.fsdp.rank() / parts.ep, all.rank(), "ep");
  world.expert_fsdp = world.fsdp.split(world.fsdp.rank() % parts.ep, all.rank(), "expert_fsdp");
  return world;
}

/// What the ranks of a test share one after the other: those that `can_have` it.
inline std::vector<Parts> trained_parts() {
  return {{.tp = 2}, {.tp = 4}, {.cp = 2}, {.cp = 3}, {.cp = 4}, {.cp = 2, .tp = 2}};
}

/// Whether so many ranks can have such parts, of `dp_shard` shards, or of as many as are left (0).
inline bool can_have(int num_ranks, int dp_shard, const Parts& parts) {
  return num_ranks % ((dp_shard == 0 ? 1 : dp_shard) * parts.cp * parts.tp) == 0;
}

}  // namespace finetune::tests
