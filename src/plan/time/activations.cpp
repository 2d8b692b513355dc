// SPDX-License-Identifier: Apache-2.0
#include "plan/time/activations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace finetune::plan {
namespace {

using enum ActivationCheckpointing;

/// By how much offloading has to be faster: its rates are those of links that others use too.
constexpr double clearly = 0.02;

/// Of the host's memory that is there, where activations are in it: others need some of it, too.
constexpr double of_the_host = 0.9;

/// The plans of one strategy, by how it keeps activations.
class Ways {
 public:
  Ways(const PlanInput& request, const model::ParameterTable& table, const Site& site)
      : request_(request), table_(table), site_(site) {}

  PlanInput with(ActivationCheckpointing mode, std::int64_t recomputed_blocks,
                 std::int64_t offloaded_blocks = 0) const {
    PlanInput settled = request_;
    settled.activation_checkpointing = mode;
    settled.recomputed_blocks = recomputed_blocks;
    settled.offloaded_blocks = offloaded_blocks;
    return settled;
  }

  bool fits(const PlanInput& settled, const Plan& plan) const {
    const auto host_bytes = static_cast<double>(plan.host_bytes());
    const bool fits_host =
        settled.offloaded_blocks == 0 || site_.available_host_bytes <= 0 ||
        host_bytes <= of_the_host * static_cast<double>(site_.available_host_bytes);
    return fits_host && leaves_room(plan, site_);
  }
  bool fits(const PlanInput& settled) const { return fits(settled, make(settled, table_)); }

  WayToKeep way(const PlanInput& settled) const {
    const Plan plan = make(settled, table_);
    return {.mode = settled.activation_checkpointing,
            .recomputed_blocks = settled.recomputed_blocks,
            .offloaded_blocks = settled.offloaded_blocks,
            .memory_bytes = plan.memory_bytes(),
            .host_bytes = plan.host_bytes(),
            .step_s = plan_time(plan, settled, table_, site_.machine, site_.passes).step_s,
            .fits = fits(settled, plan)};
  }

  /// Those worth a comparison, from the plainest on; of each mode the first whether it fits or not.
  std::vector<PlanInput> all() const {
    std::vector<PlanInput> ways;
    for (const ActivationCheckpointing mode : {none, selective}) {
      ways.push_back(with(mode, 0));
      if (fits(ways.back())) continue;
      add(fewest_recomputed(mode, 0), ways);
      if (can_offload()) add_offloading(mode, ways);
    }
    ways.push_back(with(full, 0));
    if (site_.offloads_inputs && can_offload() && !fits(ways.back()))
      add(fewest_offloaded(full, num_blocks()), ways);
    return ways;
  }

 private:
  std::int64_t num_blocks() const { return request_.architecture.num_layers; }
  bool can_offload() const { return request_.on_gpu && site_.machine.link_to_host_gb_per_s() > 0; }

  /// So many blocks that all else is kept; where that waits for the link to the host, with some
  /// recomputed instead.
  void add_offloading(ActivationCheckpointing mode, std::vector<PlanInput>& ways) const {
    const auto alone = fewest_offloaded(mode, num_blocks() - 1);
    if (alone) ways.push_back(*alone);
    if (alone && way(*alone).step_s < (1 + clearly) * way(with(mode, 0)).step_s) return;
    for (const double share : {0.25, 0.5, 0.75}) {
      const auto both = fewest_recomputed(mode, share);
      if (both && both->offloaded_blocks > 0) ways.push_back(*both);
    }
  }

  static void add(std::optional<PlanInput> way, std::vector<PlanInput>& ways) {
    if (way) ways.push_back(*std::move(way));
  }

  /// The least number up to `most` with which it fits, if there is one. More blocks need less of
  /// the device's memory; more of the host's, if they are offloaded.
  template <typename Plans>
  std::optional<PlanInput> fewest(std::int64_t most, const Plans& with_so_many) const {
    const auto is_enough = [&](std::int64_t blocks) {
      return leaves_room(make(with_so_many(blocks), table_), site_);
    };
    std::int64_t too_few = 0, enough = most;
    if (enough <= 0 || !is_enough(enough)) return std::nullopt;
    while (enough - too_few > 1) {
      const std::int64_t middle = (too_few + enough) / 2;
      (is_enough(middle) ? enough : too_few) = middle;
    }
    PlanInput settled = with_so_many(enough);
    return fits(settled) ? std::optional(std::move(settled)) : std::nullopt;
  }

  /// Whole blocks; of the others, of which one is kept at least, a share is offloaded.
  std::optional<PlanInput> fewest_recomputed(ActivationCheckpointing mode, double share) const {
    return fewest(num_blocks() - 1, [&](std::int64_t blocks) {
      return with(mode, blocks,
                  static_cast<std::int64_t>(share * static_cast<double>(num_blocks() - blocks)));
    });
  }

  std::optional<PlanInput> fewest_offloaded(ActivationCheckpointing mode, std::int64_t most) const {
    return fewest(most, [&](std::int64_t blocks) { return with(mode, 0, blocks); });
  }

  const PlanInput& request_;
  const model::ParameterTable& table_;
  const Site& site_;
};

}  // namespace

bool WayToKeep::is_of(const PlanInput& request) const {
  return mode == request.activation_checkpointing &&
         recomputed_blocks == request.recomputed_blocks &&
         offloaded_blocks == request.offloaded_blocks;
}

WayToKeep way_of(const PlanInput& request) {
  return {.mode = request.activation_checkpointing,
          .recomputed_blocks = request.recomputed_blocks,
          .offloaded_blocks = request.offloaded_blocks};
}

std::vector<WayToKeep> ways_to_keep(const PlanInput& request, const model::ParameterTable& table,
                                    const Site& site) {
  const Ways ways(request, table, site);
  const auto does_both = [](const WayToKeep& way) {
    return way.recomputed_blocks > 0 && way.offloaded_blocks > 0;
  };
  std::vector<WayToKeep> all;
  for (const PlanInput& settled : ways.all()) {
    const WayToKeep way = ways.way(settled);
    const bool is_another = does_both(way) && does_both(all.back()) && all.back().mode == way.mode;
    if (!is_another)
      all.push_back(way);
    else if (way.step_s < all.back().step_s)
      all.back() = way;
  }
  return all;
}

PlanInput with_activations(const PlanInput& request, const model::ParameterTable& table,
                           const Site& site) {
  if (!request.chooses_activations) return request;
  const Ways ways(request, table, site);
  if (site.available_bytes <= 0 || ways.fits(ways.with(none, 0))) return ways.with(none, 0);
  // Those that do not offload first: they are what the others have to be clearly faster than.
  std::vector<PlanInput> all = ways.all();
  // Without std::ranges, whose subranges older compilers (Clang 14) do not take.
  std::stable_partition(all.begin(), all.end(),
                        [](const PlanInput& w) { return w.offloaded_blocks == 0; });
  PlanInput best = ways.with(full, 0);
  std::optional<double> best_s;
  for (const PlanInput& settled : all) {
    const WayToKeep way = ways.way(settled);
    if (!way.fits) continue;
    const bool is_first_offloaded = settled.offloaded_blocks > 0 && best.offloaded_blocks == 0;
    if (best_s && way.step_s >= (is_first_offloaded ? 1 - clearly : 1) * *best_s) continue;
    best = settled;
    best_s = way.step_s;
  }
  return best;
}

std::string to_string(ActivationCheckpointing mode) {
  return mode == full ? "full" : mode == selective ? "selective" : "none";
}

std::string describe_recomputation(const WayToKeep& way, std::int64_t num_blocks) {
  std::string text = to_string(way.mode);
  if (way.recomputed_blocks > 0)
    text += fmt::format(", {} of {} blocks whole", way.recomputed_blocks, num_blocks);
  if (way.offloaded_blocks > 0) text += fmt::format(", {} offloaded", way.offloaded_blocks);
  return text;
}

}  // namespace finetune::plan
