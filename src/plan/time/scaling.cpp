// SPDX-License-Identifier: Apache-2.0
#include "plan/time/scaling.hpp"

#include <algorithm>
#include <set>

namespace finetune::plan {
namespace {

constexpr std::int64_t beyond = 4;

std::set<std::int64_t> node_counts(std::int64_t asked, const Machine& machine) {
  std::set<std::int64_t> counts = {asked};
  // Where nobody knows the network there is but one node.
  if (machine.inter_gb_per_s <= 0) return counts;
  for (std::int64_t nodes = 1; nodes <= beyond * asked; nodes *= 2)
    counts.insert(nodes);
  return counts;
}

/// Ranks that compute a sequence together.
std::int64_t sharing(const PlanInput& request) {
  return request.parallel.num_tp() * request.parallel.num_cp();
}

PlanInput on_nodes(const PlanInput& request, std::int64_t num_nodes, Scaling scaling) {
  PlanInput scaled = request;
  scaled.parallel.sharding.reset();
  scaled.parallel.dp_shard = scaled.parallel.dp_replicate = 0;
  scaled.ranks.num_nodes = num_nodes;
  scaled.ranks.world_size = num_nodes * request.ranks.ranks_per_node;
  scaled.ranks.is_even = true;
  if (scaling == Scaling::weak)
    scaled.global_batch =
        std::max<std::int64_t>(1, request.global_batch * num_nodes / request.ranks.num_nodes);
  // Smaller micro-batches before ranks without any.
  const std::int64_t ranks = std::max<std::int64_t>(1, scaled.ranks.world_size / sharing(request));
  scaled.micro_batch =
      std::clamp<std::int64_t>((scaled.global_batch + ranks - 1) / ranks, 1, request.micro_batch);
  return scaled;
}

}  // namespace

std::vector<ScalingRow> scale(const PlanInput& request, const model::ParameterTable& table,
                              const Site& site, Scaling scaling) {
  std::vector<ScalingRow> rows;
  for (const std::int64_t num_nodes : node_counts(request.ranks.num_nodes, site.machine)) {
    const PlanInput scaled = on_nodes(request, num_nodes, scaling);
    ParallelSettings whole = scaled.parallel;
    whole.sharding = Sharding::full_shard;
    if (!is_mesh(whole, scaled.ranks)) continue;
    const bool has_idle_ranks = scaled.global_batch < scaled.ranks.world_size / sharing(request);
    if (has_idle_ranks && scaling == Scaling::weak && num_nodes != request.ranks.num_nodes)
      continue;
    const std::vector<Strategy> strategies = compare(scaled, table, site);
    if (!strategies.front().fits) continue;
    ScalingRow row{num_nodes, scaled.global_batch, strategies.front(), has_idle_ranks};
    const auto& first = rows.empty() ? row : rows.front();
    row.efficiency =
        row.strategy.time.tokens_per_s_of_rank / first.strategy.time.tokens_per_s_of_rank;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace finetune::plan
