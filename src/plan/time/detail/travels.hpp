#pragma once
// SPDX-License-Identifier: Apache-2.0
// What travels in a step, and how often: activations stage by stage, units by their events.

#include <array>
#include <cstdint>
#include <vector>

#include "plan/layout/stages.hpp"
#include "plan/machine/detail/collectives.hpp"
#include "plan/memory/detail/ops_cost.hpp"
#include "plan/plan.hpp"

namespace finetune::plan {

/// Activations of one micro-batch that travel in a stage.
struct StageTravels {
  std::vector<model::Travel> forward = {};
  std::vector<model::Travel> backward = {};
  std::vector<model::Travel> again = {};  ///< forward, where a block is recomputed
};

/// The embedding, the blocks, the head. `own`: a rank's table (largest_table).
std::vector<StageTravels> plan_travels(const PlanInput& request, const model::ParameterTable& own);

/// The groups in which activations travel.
inline constexpr std::array all_sharers = {model::Sharers::tp, model::Sharers::cp,
                                           model::Sharers::ep};
const char* name_of(model::Sharers among);
GroupShape shape_of(model::Sharers among, const Mesh& mesh, const Ranks& ranks);

/// By a node to others.
double by_node_bytes(const model::Travel& travel, const GroupShape& group, const Links& links);

/// Collectives of a unit in a step.
struct UnitCounts {
  std::int64_t gathers = 0;
  std::int64_t reductions = 0;
  std::int64_t over_replicas = 0;
};
std::vector<UnitCounts> count_collectives(const Plan& plan, const PlanInput& request,
                                          const schedule::Stages& stages);

}  // namespace finetune::plan
