#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model of blocks only, for plans.

#include <algorithm>
#include <string>

#include "plan/plan.hpp"
#include "support/optimizers.hpp"

namespace finetune::tests {

/// Equal blocks of one matrix and one norm each; odd, so that two ranks need padding. The norm is
/// the block's second part.
inline model::ParameterTable block_table(int num_blocks, std::int64_t width = 1001) {
  model::ParameterTable table;
  for (int i = 0; i < num_blocks; ++i) {
    table.units.push_back("layers." + std::to_string(i));
    table.rows.push_back({.name = "matrix", .shape = {width, width}, .unit = i, .stage = i});
    table.rows.push_back(
        {.name = "norm", .shape = {width}, .unit = i, .part = 1, .decayed = false, .stage = i});
  }
  return table;
}

/// Nodes of `ranks_per_node` ranks; the last may have fewer.
inline plan::Ranks ranks_on_nodes(std::int64_t world_size, std::int64_t ranks_per_node) {
  return {.world_size = world_size,
          .ranks_per_node = std::min(world_size, ranks_per_node),
          .num_nodes = (world_size + ranks_per_node - 1) / ranks_per_node,
          .is_even = world_size <= ranks_per_node || world_size % ranks_per_node == 0};
}

/// FULL_SHARD on nodes of two ranks.
inline plan::PlanInput request(std::int64_t world_size, core::DType dtype = core::DType::bf16) {
  plan::PlanInput request = adamw_request();
  request.architecture.num_layers = 16;
  request.architecture.vocab_size = 1000;
  request.architecture.d_model = 64;
  request.architecture.num_heads = 4;
  request.architecture.num_kv_heads = 2;
  request.architecture.head_size = 16;
  request.architecture.d_ff = 96;
  request.parallel.sharding = plan::sharding_named("FULL_SHARD");
  request.numbers.compute = dtype;
  request.ranks = ranks_on_nodes(world_size, 2);
  request.global_batch = 8;
  request.micro_batch = 2;
  request.max_seq_length = 32;
  return request;
}

}  // namespace finetune::tests
