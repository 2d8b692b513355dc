// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/gpu_placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>

#include "core/json.hpp"

namespace finetune::comm {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SeenGpu, uuid, pci, distance)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeRank, rank, is_bound, gpus)

namespace {

constexpr std::int64_t unreachable = std::numeric_limits<std::int64_t>::max() / 4;

/// What tells GPUs of a node apart.
const std::string& name_of(const SeenGpu& gpu) {
  return gpu.pci.empty() ? gpu.uuid : gpu.pci;
}

/// All GPUs that the ranks see, in the order in which they first do.
std::vector<std::string> gpus_of(std::span<const NodeRank> ranks) {
  std::vector<std::string> names;
  for (const NodeRank& rank : ranks)
    for (const SeenGpu& gpu : rank.gpus)
      if (std::ranges::find(names, name_of(gpu)) == names.end()) names.push_back(name_of(gpu));
  return names;
}

PlacedBy decide(std::span<const NodeRank> ranks) {
  const auto sees_one = [](const NodeRank& rank) { return rank.gpus.size() <= 1; };
  if (std::ranges::all_of(ranks, sees_one)) return PlacedBy::launcher;
  const auto is_bound = [](const NodeRank& rank) { return rank.is_bound; };
  if (std::ranges::none_of(ranks, is_bound)) return PlacedBy::order;
  for (const NodeRank& rank : ranks)
    for (const SeenGpu& gpu : rank.gpus)
      if (gpu.distance < 0) return PlacedBy::order_blind;
  return PlacedBy::nearness;
}

using Costs = std::vector<std::vector<std::int64_t>>;  ///< [rank][GPU]

/// Of giving each rank each GPU: its distance, and where that makes no difference, how far rank and
/// GPU are apart in their orders. Squares of the latter keep the order.
Costs costs_of(std::span<const NodeRank> ranks, const std::vector<std::string>& names,
               PlacedBy by) {
  constexpr std::int64_t distance_before_order = 1'000'000'000;
  Costs costs(ranks.size(), std::vector<std::int64_t>(names.size(), unreachable));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (const SeenGpu& gpu : ranks[i].gpus) {
      const auto at = std::ranges::find(names, name_of(gpu)) - names.begin();
      const std::int64_t apart = at - static_cast<std::int64_t>(i);
      const std::int64_t distance = by == PlacedBy::nearness ? gpu.distance : 0;
      costs[i][static_cast<std::size_t>(at)] = distance * distance_before_order + apart * apart;
    }
  }
  return costs;
}

/// Whom each GPU goes to, -1: nobody. Ranks are served one after the other; one that finds all its
/// GPUs taken may send another rank to a GPU of that one's own, along the chain of moves that costs
/// least (successive shortest paths: Ahuja, Magnanti, Orlin, Network Flows, 1993, chapter 9).
class Assignment {
 public:
  explicit Assignment(const Costs& costs, std::size_t num_gpus)
      : costs_(costs), owner_(num_gpus, -1) {}

  /// False if no GPU can be had for `rank`, whoever moves.
  bool serve(int rank) {
    spent_.assign(owner_.size(), unreachable);
    from_.assign(owner_.size(), -1);
    offer(rank, 0, -1);
    // Costs along a chain may be negative: as many rounds as there are GPUs settle all of them.
    for (std::size_t round = 0; round < owner_.size(); ++round)
      for (std::size_t gpu = 0; gpu < owner_.size(); ++gpu)
        if (owner_[gpu] >= 0 && spent_[gpu] < unreachable)
          offer(owner_[gpu], spent_[gpu] - cost(owner_[gpu], gpu), static_cast<int>(gpu));
    int last = -1;
    for (std::size_t gpu = 0; gpu < owner_.size(); ++gpu) {
      const bool is_free = owner_[gpu] < 0 && spent_[gpu] < unreachable;
      if (is_free && (last < 0 || spent_[gpu] < spent_[static_cast<std::size_t>(last)]))
        last = static_cast<int>(gpu);
    }
    if (last < 0) return false;
    move_along(last, rank);
    return true;
  }

  const std::vector<int>& owners() const { return owner_; }

 private:
  std::int64_t cost(int rank, std::size_t gpu) const {
    return costs_[static_cast<std::size_t>(rank)][gpu];
  }

  /// `rank`, which gives up the GPU `from`, may take any other of its own.
  void offer(int rank, std::int64_t spent, int from) {
    for (std::size_t gpu = 0; gpu < owner_.size(); ++gpu) {
      if (static_cast<int>(gpu) == from || cost(rank, gpu) == unreachable) continue;
      if (spent + cost(rank, gpu) >= spent_[gpu]) continue;
      spent_[gpu] = spent + cost(rank, gpu);
      from_[gpu] = from;
    }
  }

  void move_along(int gpu, int rank) {
    while (gpu >= 0) {
      const int from = from_[static_cast<std::size_t>(gpu)];
      owner_[static_cast<std::size_t>(gpu)] =
          from < 0 ? rank : owner_[static_cast<std::size_t>(from)];
      gpu = from;
    }
  }

  const Costs& costs_;
  std::vector<int> owner_;
  std::vector<std::int64_t> spent_;  ///< on the cheapest chain that ends at this GPU
  std::vector<int> from_;            ///< the GPU before it in this chain
};

[[noreturn]] void fail_without_gpu(std::span<const NodeRank> ranks, const NodeRank& rank) {
  std::set<std::string> names, uuids;
  for (const NodeRank& other : ranks) {
    for (const SeenGpu& gpu : other.gpus) {
      names.insert(name_of(gpu));
      uuids.insert(gpu.uuid);
    }
  }
  const auto sees_some = [](const NodeRank& other) { return !other.gpus.empty(); };
  const auto num_ranks = std::ranges::count_if(ranks, sees_some);
  const std::string seen = fmt::format("{} GPU{}", names.size(), names.size() == 1 ? "" : "s");
  if (uuids.size() > names.size()) {
    core::fail(core::ErrorKind::environment,
               {fmt::format("rank {}", rank.rank), "no GPU is left for it",
                fmt::format("the {} ranks of its node see parts (MIG) of {}, and NCCL connects "
                            "whole GPUs only",
                            num_ranks, seen),
                "Start one rank per GPU, or have MIG switched off."});
  }
  core::fail(core::ErrorKind::environment,
             {fmt::format("rank {}", rank.rank), "no GPU is left for it",
              fmt::format("the {} ranks of its node see {} together", num_ranks, seen),
              "Start as many ranks per node as it has GPUs, and let each rank see one of its own "
              "or all of them (CUDA_VISIBLE_DEVICES)."});
}

}  // namespace

std::string to_text(const NodeRank& rank) {
  return core::Json(rank).dump();
}

NodeRank node_rank_from_text(std::string_view text) {
  return core::Json::parse(text).get<NodeRank>();
}

std::string to_string(PlacedBy by) {
  switch (by) {
    case PlacedBy::launcher:
      return "the one that its launcher shows it";
    case PlacedBy::nearness:
      return "near its cores";
    case PlacedBy::order:
      return "in the order of ranks, which are not bound to cores";
    case PlacedBy::order_blind:
      break;
  }
  return "in the order of ranks: the system does not say which cores are near a GPU";
}

Placement place_ranks(std::span<const NodeRank> ranks) {
  const std::vector<std::string> names = gpus_of(ranks);
  Placement placement{.device = std::vector<int>(ranks.size(), -1), .by = decide(ranks)};
  const Costs costs = costs_of(ranks, names, placement.by);
  Assignment assignment(costs, names.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].gpus.empty() || assignment.serve(static_cast<int>(i))) continue;
    fail_without_gpu(ranks, ranks[i]);
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (std::size_t device = 0; device < ranks[i].gpus.size(); ++device) {
      const auto at = std::ranges::find(names, name_of(ranks[i].gpus[device])) - names.begin();
      if (assignment.owners()[static_cast<std::size_t>(at)] != static_cast<int>(i)) continue;
      placement.device[i] = static_cast<int>(device);
      break;
    }
  }
  return placement;
}

}  // namespace finetune::comm
