#pragma once
// SPDX-License-Identifier: Apache-2.0
// What ranks send each other in a step, by the group that they do it in.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/machine/group_shape.hpp"
#include "plan/plan.hpp"

namespace finetune::plan {

struct GroupTraffic {
  std::string name;  ///< as in shard::Groups and metrics.jsonl
  GroupShape shape;
  double sent_bytes = 0;       ///< by a rank, on average over the group
  double to_others_bytes = 0;  ///< of them, those that leave the node
  double by_node_bytes = 0;    ///< by a node to others, of all its groups of this kind
};

/// Of every group that has several ranks: weights and gradients of units in fsdp, those of experts
/// in expert_fsdp, their sums over copies of the model in dp_replicate, activations in tp, cp and
/// ep. Sequences are full and routers even: the most that a step without idle passes sends. `table`
/// is the family's.
std::vector<GroupTraffic> plan_traffic(const Plan& plan, const PlanInput& request,
                                       const model::ParameterTable& table);

}  // namespace finetune::plan
