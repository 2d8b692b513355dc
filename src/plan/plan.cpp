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
  const Mesh mesh = make_mesh(request.parallel, request.ranks);
  Plan plan{.mesh = mesh,
            .shards = ShardMap(table, mesh.dp_shard),
            .batch = plan_batch(request, mesh.data_ranks()),
            .memory = {},
            .num_parameters = table.num_parameters(),
            .numbers = request.numbers,
            .ranks = request.ranks};
  plan.memory = plan_memory(request, plan.shards);
  return plan;
}

std::string to_string(const Plan& plan) {
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<24} {}\n", name, value);
  };
  const std::int64_t num_nodes = plan.ranks.num_nodes;
  line("parameters", core::with_commas(plan.num_parameters));
  line("ranks",
       fmt::format("{} on {} node{}", plan.ranks.world_size, num_nodes, num_nodes == 1 ? "" : "s"));
  line("sharding",
       fmt::format("{}: {} cop{} of the model, each over {} rank{}", to_string(plan.mesh.sharding),
                   plan.mesh.dp_replicate, plan.mesh.dp_replicate == 1 ? "y" : "ies",
                   plan.mesh.dp_shard, plan.mesh.dp_shard == 1 ? "" : "s"));
  line("step",
       fmt::format("{} sequences = {} micro-batch{} of {}, {} pass{} a rank, at most {} tokens",
                   plan.batch.global_batch, plan.batch.num_micro_batches,
                   plan.batch.num_micro_batches == 1 ? "" : "es", plan.batch.micro_batch,
                   plan.batch.accumulation, plan.batch.accumulation == 1 ? "" : "es",
                   core::with_commas(plan.batch.max_tokens_per_step())));
  const std::int64_t idle =
      plan.batch.accumulation * plan.mesh.data_ranks() - plan.batch.num_micro_batches;
  if (idle > 0) {
    line("", fmt::format("{} of {} passes idle: micro-batches do not divide by the ranks", idle,
                         plan.batch.accumulation * plan.mesh.data_ranks()));
  }
  line("memory a rank", core::human_bytes(plan.memory_bytes()));
  for (const MemoryItem& item : plan.memory) {
    line("", fmt::format("{:>10}  {}", core::human_bytes(item.bytes), item.name));
  }
  text.pop_back();
  return text;
}

}  // namespace finetune::plan
