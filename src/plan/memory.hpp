#pragma once
// SPDX-License-Identifier: Apache-2.0
// Bytes of one rank at the peak of a step, by category.

#include <vector>

#include "plan/plan.hpp"

namespace finetune::plan {

std::vector<MemoryItem> plan_memory(const Request& request, const ShardMap& shards);

}  // namespace finetune::plan
