#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a rank keeps of a unit, as parts of the logical tensors of a checkpoint.

#include <vector>

#include "optim/optimizer.hpp"
#include "plan/stored_runs.hpp"
#include "shard/model_shards.hpp"

namespace finetune::train {

inline constexpr const char* kind_master = plan::master_kind;

/// Master weights and what the optimizer keeps of a trained unit.
std::vector<optim::StateTensor> kept_of(const shard::ModelShards& shards,
                                        const optim::Optimizer& optimizer, int unit);

/// What this rank's shard of a trained unit is in a checkpoint (plan::stored_runs); indices into
/// `kept`. Not collective.
std::vector<plan::StoredRun> stored_runs(const shard::ModelShards& shards, int unit,
                                         const std::vector<optim::StateTensor>& kept,
                                         plan::Holders holders);

}  // namespace finetune::train
