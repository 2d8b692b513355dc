#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether all copies of the model are the same.

#include <cstdint>

#include "optim/optimizer.hpp"
#include "shard/model_shards.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// Compares a hash of this rank's master weights and moments with those of the ranks that keep the
/// same shards of other copies, and master weights that several ranks of tp hold with theirs,
/// however these are cut into shards. Collective on the world and on the mesh's groups. Throws:
/// AgreedError of ErrorKind::numbers naming a unit or a tensor and the ranks that differ.
void require_equal_replicas(const shard::ModelShards& shards, const optim::Optimizer& optimizer,
                            const world::World& world, std::int64_t step);

}  // namespace finetune::train
