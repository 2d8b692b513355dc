// SPDX-License-Identifier: Apache-2.0
#include "plan/time/meshes.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "plan/detail/sharing.hpp"

namespace finetune::plan {
namespace {

constexpr std::int64_t shortest_part_tokens = 256;

std::set<std::int64_t> powers_of_two(std::int64_t most) {
  std::set<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= most; size *= 2)
    sizes.insert(size);
  return sizes;
}

class Meshes {
 public:
  Meshes(const PlanInput& request, const model::ParameterTable& table, const Site& site)
      : request_(request), table_(table), site_(site) {}

  std::vector<Strategy> compare(const OpenAxes& open) {
    const ParallelSettings& own = request_.parallel;
    const auto sizes = [](bool is_open, std::int64_t num, std::int64_t most) {
      return is_open ? powers_of_two(most) : std::set<std::int64_t>{num};
    };
    const Ranks& ranks = request_.ranks;
    const std::int64_t parts = request_.max_seq_length / shortest_part_tokens;
    for (const std::int64_t tp : sizes(open.tp, own.num_tp(), ranks.ranks_per_node)) {
      for (const std::int64_t ep : open.ep ? expert_sizes() : std::set{own.num_ep()})
        for (const std::int64_t cp :
             sizes(open.cp, own.num_cp(),
                   std::min(ranks.world_size / tp, std::max(parts, own.num_cp()))))
          if (add(tp, cp, ep)) break;
    }
    add_own();
    std::ranges::stable_sort(all_, [](const Strategy& a, const Strategy& b) {
      return a.fits != b.fits ? a.fits : a.time.step_s < b.time.step_s;
    });
    return std::move(all_);
  }

 private:
  std::set<std::int64_t> expert_sizes() const {
    const std::int64_t num = request_.architecture.experts.num;
    std::set<std::int64_t> sizes = {1};
    const Ranks& ranks = request_.ranks;
    for (const std::int64_t size :
         {ranks.ranks_per_node, 4 * ranks.ranks_per_node, std::min(num, ranks.world_size)})
      if (size > 1 && size <= num) sizes.insert(size);
    return sizes;
  }

  /// Whether a mesh of this tp and ep fits with room to spare, computes nothing twice and offloads
  /// nothing: then longer parts of sequences are faster.
  bool add(std::int64_t tp, std::int64_t cp, std::int64_t ep) {
    std::optional<Strategy> best;
    for (const std::optional<Sharding> sharding : shardings()) {
      PlanInput other = request_;
      other.parallel.tp = tp;
      other.parallel.cp = cp;
      other.parallel.ep = ep;
      if (sharding) other.parallel.sharding = sharding;
      if (!has_mesh(other, table_)) continue;
      const Mesh mesh = make_mesh(other.parallel, other.ranks);
      // FULL_SHARD by another name.
      if (sharding == Sharding::hybrid_shard &&
          (mesh.size(groups::dp_replicate) == 1 || mesh.size(groups::fsdp) == 1))
        continue;
      Strategy strategy = plan_strategy(other, table_, site_);
      const bool is_better =
          !best ||
          (strategy.fits != best->fits ? strategy.fits : strategy.time.step_s < best->time.step_s);
      if (is_better) best = std::move(strategy);
    }
    if (!best) return false;
    const PlanInput& settled = best->request;
    const bool recomputes = request_.chooses_activations &&
                            (settled.activation_checkpointing != ActivationCheckpointing::none ||
                             settled.recomputed_blocks > 0 || settled.offloaded_blocks > 0);
    const bool is_enough = best->is_comfortable && !recomputes;
    all_.push_back(*std::move(best));
    return is_enough;
  }

  /// What the request says itself, unless it was compared.
  void add_own() {
    const ParallelSettings& own = request_.parallel;
    const bool is_there = std::ranges::any_of(all_, [&](const Strategy& strategy) {
      const ParallelSettings& other = strategy.request.parallel;
      return other.num_tp() == own.num_tp() && other.num_cp() == own.num_cp() &&
             other.num_ep() == own.num_ep();
    });
    if (!is_there) add(own.num_tp(), own.num_cp(), own.num_ep());
  }

  std::vector<std::optional<Sharding>> shardings() const {
    const ParallelSettings& own = request_.parallel;
    if (own.sharding || own.dp_shard > 0 || own.dp_replicate > 0) return {std::nullopt};
    return {Sharding::full_shard, Sharding::hybrid_shard};
  }

  const PlanInput& request_;
  const model::ParameterTable& table_;
  const Site& site_;
  std::vector<Strategy> all_;
};

}  // namespace

OpenAxes open_axes(const ParallelSettings& parallel) {
  return {parallel.tp == 0, parallel.cp == 0, parallel.ep == 0};
}

std::vector<Strategy> compare_meshes(const PlanInput& request, const model::ParameterTable& table,
                                     const Site& site, const OpenAxes& open) {
  return Meshes(request, table, site).compare(open);
}

}  // namespace finetune::plan
