#pragma once
// SPDX-License-Identifier: Apache-2.0
// The ranks of a test as a mesh.

#include "world/world.hpp"

namespace finetune::tests {

/// What ranks share besides the model's copies.
struct Parts {
  int cp = 1;
  int tp = 1;
  int ep = 1;
};

/// `all` as size / (dp_shard cp tp) copies of the model. Collective on `all`.
inline world::World mesh_of(const comm::Communicator& all, int dp_shard, const Parts& parts = {}) {
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

}  // namespace finetune::tests
