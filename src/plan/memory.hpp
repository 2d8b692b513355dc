#pragma once
// SPDX-License-Identifier: Apache-2.0
// Bytes of one rank at the peak of a step, by category.

#include <vector>

#include "plan/plan.hpp"

namespace finetune::plan {

/// As kernels::product and kernels::widened_attention have them; train checks that they agree.
inline constexpr std::int64_t product_scratch_bytes = 1'253'376;
inline constexpr std::int64_t attention_bytes_per_element = 28;
inline constexpr std::int64_t attention_tile = 48, attention_panel = 16;
inline constexpr std::int64_t most_attention_elements = std::int64_t{9} << 20;

/// The largest of all ranks: padding counts on each. Items of no bytes are left out.
/// `table` is what `shards` lays out.
std::vector<MemoryItem> plan_memory(const Request& request, const Mesh& mesh,
                                    const model::ParameterTable& table, const ShardMap& shards);

}  // namespace finetune::plan
