#pragma once
// SPDX-License-Identifier: Apache-2.0
// The ranks of a test as a mesh.

#include "world/world.hpp"

namespace finetune::tests {

/// `all` as size / dp_shard copies of the model. Collective on `all`.
inline world::World mesh_of(const comm::Communicator& all, int dp_shard) {
  world::World world;
  world.world = world.batch = all;
  world.fsdp = all.split(all.rank() / dp_shard, all.rank(), "fsdp");
  world.dp_replicate = all.split(all.rank() % dp_shard, all.rank(), "dp_replicate");
  return world;
}

}  // namespace finetune::tests
