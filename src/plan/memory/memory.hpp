#pragma once
// SPDX-License-Identifier: Apache-2.0
// Bytes of one rank at the peak of a step, by category.

#include <vector>

#include "plan/plan.hpp"

namespace finetune::plan {

/// The largest of all ranks: padding counts on each. Items of no bytes are left out.
/// `table` is what `shards` lays out.
std::vector<MemoryItem> plan_memory(const PlanInput& request, const Mesh& mesh,
                                    const model::ParameterTable& table, const ShardMap& shards);

}  // namespace finetune::plan
