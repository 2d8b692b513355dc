#pragma once
// SPDX-License-Identifier: Apache-2.0
// Parts of adapters that begin with something of the matrices that they adapt.

#include <cstdint>

#include "shard/model_shards.hpp"

namespace finetune::base {

/// Sets the parts of rows with model::Adapted::start to what their adapter makes of these, and
/// publishes them. Ranks share out the matrices of a unit, and each is computed by one of them:
/// results do not depend on how many there are. The frozen weights must be there. Collective on
/// fsdp. Throws, on every rank: what AdapterMath::begin throws.
void set_starts(std::uint64_t seed, shard::ModelShards& shards);

}  // namespace finetune::base
