// SPDX-License-Identifier: Apache-2.0
#include "plan/time/activations.hpp"

#include <fmt/format.h>

#include <optional>

namespace finetune::plan {
namespace {

using enum ActivationCheckpointing;

/// The plans of one strategy, by how it keeps activations.
class Ways {
 public:
  Ways(const PlanInput& request, const model::ParameterTable& table, const Site& site)
      : request_(request), table_(table), site_(site) {}

  PlanInput with(ActivationCheckpointing mode, std::int64_t recomputed_blocks) const {
    PlanInput settled = request_;
    settled.activation_checkpointing = mode;
    settled.recomputed_blocks = recomputed_blocks;
    return settled;
  }

  bool fits(const PlanInput& settled) const {
    return make(settled, table_).memory_bytes() <= comfortable_bytes(site_);
  }

  WayToKeep way(const PlanInput& settled) const {
    const Plan plan = make(settled, table_);
    return {.mode = settled.activation_checkpointing,
            .recomputed_blocks = settled.recomputed_blocks,
            .memory_bytes = plan.memory_bytes(),
            .step_s = plan_time(plan, settled, table_, site_.machine, site_.passes).step_s,
            .fits = plan.memory_bytes() <= comfortable_bytes(site_)};
  }

  /// With the fewest whole blocks with which it fits; nothing if it does not even with one that is
  /// kept. Each block more needs less memory and more time.
  std::optional<PlanInput> fewest_blocks(ActivationCheckpointing mode) const {
    if (fits(with(mode, 0))) return with(mode, 0);
    std::int64_t too_few = 0, enough = request_.architecture.num_layers - 1;
    if (enough <= 0 || !fits(with(mode, enough))) return std::nullopt;
    while (enough - too_few > 1) {
      const std::int64_t middle = (too_few + enough) / 2;
      (fits(with(mode, middle)) ? enough : too_few) = middle;
    }
    return with(mode, enough);
  }

 private:
  const PlanInput& request_;
  const model::ParameterTable& table_;
  const Site& site_;
};

}  // namespace

bool WayToKeep::is_of(const PlanInput& request) const {
  return mode == request.activation_checkpointing && recomputed_blocks == request.recomputed_blocks;
}

std::vector<WayToKeep> ways_to_keep(const PlanInput& request, const model::ParameterTable& table,
                                    const Site& site) {
  const Ways ways(request, table, site);
  std::vector<WayToKeep> all;
  for (const ActivationCheckpointing mode : {none, selective}) {
    all.push_back(ways.way(ways.with(mode, 0)));
    if (all.back().fits) continue;
    if (const auto some = ways.fewest_blocks(mode)) all.push_back(ways.way(*some));
  }
  all.push_back(ways.way(ways.with(full, 0)));
  return all;
}

PlanInput with_activations(const PlanInput& request, const model::ParameterTable& table,
                           const Site& site) {
  if (!request.chooses_activations) return request;
  const Ways ways(request, table, site);
  if (site.available_bytes <= 0) return ways.with(none, 0);
  const std::optional<PlanInput> kept = ways.fewest_blocks(none);
  if (kept && kept->recomputed_blocks == 0) return *kept;
  const std::optional<PlanInput> cheap = ways.fewest_blocks(selective);
  if (!kept && !cheap) return ways.with(full, 0);
  if (!kept || !cheap) return kept ? *kept : *cheap;
  return ways.way(*kept).step_s <= ways.way(*cheap).step_s ? *kept : *cheap;
}

std::string to_string(ActivationCheckpointing mode) {
  return mode == full ? "full" : mode == selective ? "selective" : "none";
}

std::string describe_recomputation(const WayToKeep& way, std::int64_t num_blocks) {
  std::string text = to_string(way.mode);
  if (way.recomputed_blocks > 0)
    text += fmt::format(", {} of {} blocks whole", way.recomputed_blocks, num_blocks);
  return text;
}

}  // namespace finetune::plan
