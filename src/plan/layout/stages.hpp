#pragma once
// SPDX-License-Identifier: Apache-2.0
// The schedule's stages and rules of a sharded model.

#include "model/architecture.hpp"
#include "model/parameter_table.hpp"
#include "plan/layout/mesh.hpp"
#include "plan/layout/shard_map.hpp"
#include "plan/plan.hpp"
#include "schedule/pass.hpp"
#include "schedule/stages.hpp"

namespace finetune::plan {

/// The units of `map` by the stages of their rows. `head_row`: the embedding's if tied.
schedule::Stages stages_of(const model::ParameterTable& table, const ShardMap& map, int head_row);

/// `prefetch_depth`: ParallelSettings::prefetch_depth.
schedule::Rules rules_of(Sharding sharding, int prefetch_depth, schedule::Blocks blocks);

/// Those of a plan's request; master weights and states where the gradients are.
schedule::Rules rules_of(const PlanInput& request, const Mesh& mesh);

/// Which blocks are computed again whole, and which are offloaded.
schedule::Blocks blocks_of(ActivationCheckpointing mode, std::int64_t recomputed_blocks,
                           std::int64_t offloaded_blocks = 0);
schedule::Blocks blocks_of(const PlanInput& request);

/// The head's matrix, which is the embedding's if tied.
int head_row(const model::Architecture& architecture, const model::ParameterTable& table);

}  // namespace finetune::plan
