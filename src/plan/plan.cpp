// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <fmt/format.h>

#include "core/text.hpp"
#include "plan/memory.hpp"

namespace finetune::plan {
namespace {

BatchPlan plan_batch(const Request& request, std::int64_t data_ranks) {
  BatchPlan batch;
  batch.global_batch = request.global_batch;
  batch.micro_batch = request.micro_batch;
  batch.max_seq_length = request.max_seq_length;
  batch.num_micro_batches = (request.global_batch + request.micro_batch - 1) / request.micro_batch;
  batch.accumulation = (batch.num_micro_batches + data_ranks - 1) / data_ranks;
  return batch;
}

}  // namespace

std::int64_t Plan::memory_bytes() const {
  std::int64_t sum = 0;
  for (const MemoryItem& item : memory)
    sum += item.bytes;
  return sum;
}

Plan make(const Request& request, const model::ParameterTable& table) {
  Plan plan{.mesh = {.dp_shard = request.world_size},
            .shards = ShardMap(table, request.world_size),
            .batch = plan_batch(request, request.world_size),
            .memory = {},
            .num_parameters = table.num_parameters(),
            .world_size = request.world_size,
            .ranks_per_node = request.ranks_per_node};
  plan.memory = plan_memory(request, plan.shards);
  return plan;
}

std::string to_string(const Plan& plan) {
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<24} {}\n", name, value);
  };
  const std::int64_t num_nodes = (plan.world_size + plan.ranks_per_node - 1) / plan.ranks_per_node;
  line("parameters", core::with_commas(plan.num_parameters));
  line("ranks",
       fmt::format("{} on {} node{}", plan.world_size, num_nodes, num_nodes == 1 ? "" : "s"));
  line("sharding", fmt::format("FULL_SHARD over {} rank{}", plan.mesh.dp_shard,
                               plan.mesh.dp_shard == 1 ? "" : "s"));
  line("step",
       fmt::format("{} sequences = {} micro-batch{} of {}, {} pass{} a rank, at most {} tokens",
                   plan.batch.global_batch, plan.batch.num_micro_batches,
                   plan.batch.num_micro_batches == 1 ? "" : "es", plan.batch.micro_batch,
                   plan.batch.accumulation, plan.batch.accumulation == 1 ? "" : "es",
                   core::with_commas(plan.batch.max_tokens_per_step())));
  const std::int64_t idle =
      plan.batch.accumulation * plan.mesh.dp_shard - plan.batch.num_micro_batches;
  if (idle > 0) {
    line("", fmt::format("{} of {} passes idle: micro-batches do not divide by the ranks", idle,
                         plan.batch.accumulation * plan.mesh.dp_shard));
  }
  line("memory a rank", core::human_bytes(plan.memory_bytes()));
  for (const MemoryItem& item : plan.memory) {
    line("", fmt::format("{:>10}  {}", core::human_bytes(item.bytes), item.name));
  }
  text.pop_back();
  return text;
}

}  // namespace finetune::plan
