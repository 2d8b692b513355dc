// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/mesh.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "core/error.hpp"

namespace finetune::plan {
namespace {

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> small, large;
  for (std::int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    small.push_back(i);
    if (i != number / i) large.insert(large.begin(), number / i);
  }
  small.insert(small.end(), large.begin(), large.end());
  return small;
}

/// "1, 2, 3 or 6": the divisors of `number`; of many those around `wanted`.
std::string sizes_around(std::int64_t number, std::int64_t wanted) {
  constexpr std::ptrdiff_t most = 8;
  std::vector<std::int64_t> sizes = divisors(number);
  const auto above = std::upper_bound(sizes.begin(), sizes.end(), wanted) - sizes.begin();
  const auto first = std::clamp<std::ptrdiff_t>(
      above - most / 2, 0, std::max<std::ptrdiff_t>(0, std::ssize(sizes) - most));
  sizes = {sizes.begin() + first, sizes.begin() + std::min(first + most, std::ssize(sizes))};
  const std::int64_t last = sizes.back();
  sizes.pop_back();
  return sizes.empty() ? fmt::format("{}", last)
                       : fmt::format("{} or {}", fmt::join(sizes, ", "), last);
}

std::string ranks_text(std::int64_t ranks) {
  return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
}

/// "4 ranks", or where `parts` of them compute each sample together: "2 groups of 2 ranks".
std::string ranks_text(const Ranks& ranks, std::int64_t parts) {
  if (parts == 1) return ranks_text(ranks.world_size);
  return fmt::format("the {} group{} of {} ranks that parallel.tp and parallel.cp form",
                     ranks.world_size, ranks.world_size == 1 ? "" : "s", parts);
}

/// `key` = `value` does not divide the world.
[[noreturn]] void refuse_factor(const std::string& deck, const char* key, std::int64_t value,
                                const Ranks& ranks, std::int64_t parts, const char* why) {
  core::fail(
      core::ErrorKind::deck,
      {deck,
       fmt::format("parallel.{} = {} does not divide {}", key, value, ranks_text(ranks, parts)),
       why,
       fmt::format("Use {}, or start a multiple of {} ranks.",
                   sizes_around(ranks.world_size, value), value * parts)});
}

void require_factors(const ParallelSettings& settings, const Ranks& ranks,
                     const std::string& deck) {
  const std::int64_t parts = settings.num_tp() * settings.num_cp();
  const std::int64_t world = ranks.world_size;
  if (settings.dp_shard > 0 && world % settings.dp_shard != 0)
    refuse_factor(deck, "dp_shard", settings.dp_shard, ranks, parts,
                  parts == 1 ? "each copy of the model lies on so many ranks"
                             : "each copy of the model lies on so many groups");
  if (settings.dp_replicate > 0 && world % settings.dp_replicate != 0)
    refuse_factor(deck, "dp_replicate", settings.dp_replicate, ranks, parts,
                  parts == 1 ? "each copy of the model lies on as many ranks"
                             : "each copy of the model lies on as many groups");
  if (settings.dp_shard > 0 && settings.dp_replicate > 0 &&
      settings.dp_shard * settings.dp_replicate != world) {
    core::fail(core::ErrorKind::deck,
               {deck,
                fmt::format("parallel.dp_shard = {} times parallel.dp_replicate = {} is not {}",
                            settings.dp_shard, settings.dp_replicate, ranks_text(ranks, parts)),
                "every rank has its place in the mesh",
                fmt::format("Set one of them and leave the other 0: dp_shard = {0} means "
                            "dp_replicate = {1}.",
                            settings.dp_shard, world / settings.dp_shard)});
  }
}

void require_no_contradiction(const ParallelSettings& settings, const Ranks& ranks,
                              const std::string& deck) {
  if (settings.sharding != Sharding::no_shard) return;
  const bool shares = settings.dp_shard > 1;
  if (!shares && (settings.dp_replicate == 0 || settings.dp_replicate == ranks.world_size)) return;
  core::fail(core::ErrorKind::deck,
             {deck,
              fmt::format("parallel.{} = {} contradicts parallel.sharding = \"NO_SHARD\"",
                          shares ? "dp_shard" : "dp_replicate",
                          shares ? settings.dp_shard : settings.dp_replicate),
              "it keeps a whole copy of the model on every rank",
              "Remove it, or use FULL_SHARD or HYBRID_SHARD."});
}

/// The ranks of a job, and what is left of them where `parts` compute each sample together.
struct SharedRanks {
  Ranks all;
  std::int64_t parts = 1;
  Ranks left;
};

/// Whether as many groups of such ranks fill each node, or as many nodes each group.
bool parts_fill_nodes(const Ranks& all, std::int64_t parts) {
  return all.num_nodes == 1 || all.ranks_per_node % parts == 0 || parts % all.ranks_per_node == 0;
}

void require_even_nodes(const SharedRanks& ranks, const std::string& deck) {
  if (ranks.left.is_even) return;
  core::fail(core::ErrorKind::deck,
             {deck,
              fmt::format("parallel.sharding = \"HYBRID_SHARD\" needs as many ranks on every node, "
                          "and {} on {} nodes are not",
                          ranks_text(ranks.all.world_size), ranks.all.num_nodes),
              "a copy of the model is split over the ranks of a node",
              fmt::format("Start as many ranks on every node, set parallel.dp_shard to {}, or use "
                          "FULL_SHARD.",
                          sizes_around(ranks.left.world_size, ranks.left.ranks_per_node))});
}

void require_parts_in_nodes(const SharedRanks& ranks, const std::string& deck) {
  if (parts_fill_nodes(ranks.all, ranks.parts)) return;
  core::fail(
      core::ErrorKind::deck,
      {deck,
       fmt::format(
           "parallel.sharding = \"HYBRID_SHARD\" cannot split nodes of {} into groups of {}",
           ranks_text(ranks.all.ranks_per_node), ranks.parts),
       "parallel.tp times parallel.cp ranks compute each sample together, and a copy of the model "
       "is split over the groups of a node",
       fmt::format("Let tp times cp be {}, set parallel.dp_shard to {}, or use FULL_SHARD.",
                   sizes_around(ranks.all.ranks_per_node, ranks.parts),
                   sizes_around(ranks.left.world_size, ranks.left.ranks_per_node))});
}

/// Ranks of one copy where the deck does not say it.
std::int64_t usual_dp_shard(std::optional<Sharding> sharding, const SharedRanks& ranks,
                            const std::string& deck) {
  const Ranks& left = ranks.left;
  if (sharding == Sharding::no_shard) return 1;
  const bool is_hybrid = sharding == Sharding::hybrid_shard ||
                         (!sharding && left.num_nodes > 1 && left.ranks_per_node > 1 &&
                          left.is_even && parts_fill_nodes(ranks.all, ranks.parts));
  if (!is_hybrid) return left.world_size;
  require_even_nodes(ranks, deck);
  require_parts_in_nodes(ranks, deck);
  return left.ranks_per_node;
}

Sharding sharding_of(std::optional<Sharding> sharding, const Mesh& mesh) {
  if (sharding) return *sharding;
  if (mesh.size(groups::dp_replicate) == 1) return Sharding::full_shard;
  return mesh.size(groups::fsdp) == 1 ? Sharding::no_shard : Sharding::hybrid_shard;
}

/// Ranks of tensor and context parallelism together are one to the other axes.
Ranks without_parts(const ParallelSettings& settings, const Ranks& ranks, const std::string& deck) {
  const std::int64_t parts = settings.num_tp() * settings.num_cp();
  if (ranks.world_size % parts != 0) {
    const bool is_both = settings.num_tp() > 1 && settings.num_cp() > 1;
    core::fail(core::ErrorKind::deck, {deck,
                                       fmt::format("parallel.{} = {} does not divide {}",
                                                   is_both                 ? "tp times parallel.cp"
                                                   : settings.num_tp() > 1 ? "tp"
                                                                           : "cp",
                                                   parts, ranks_text(ranks.world_size)),
                                       "that many ranks compute each sample together",
                                       fmt::format("{} {}, or start a multiple of {} ranks.",
                                                   is_both ? "Let their product be" : "Use",
                                                   sizes_around(ranks.world_size, parts), parts)});
  }
  if (ranks.num_nodes > 1 && (ranks.ranks_per_node % settings.num_tp() != 0 || !ranks.is_even) &&
      settings.num_tp() > 1) {
    core::fail(core::ErrorKind::deck,
               {deck,
                fmt::format("parallel.tp = {} lies across nodes of {}", settings.tp,
                            ranks_text(ranks.ranks_per_node)),
                "activations would cross the network several times per block",
                ranks.is_even ? fmt::format("Inside a node: {}.",
                                            sizes_around(ranks.ranks_per_node, settings.tp))
                              : "Start as many ranks on every node."});
  }
  Ranks others = ranks;
  others.world_size /= parts;
  others.ranks_per_node = std::max<std::int64_t>(1, ranks.ranks_per_node / parts);
  others.num_nodes = (others.world_size + others.ranks_per_node - 1) / others.ranks_per_node;
  others.is_even = ranks.is_even && others.world_size % others.ranks_per_node == 0;
  return others;
}

void require_ep(const Mesh& mesh, const std::string& deck) {
  const std::int64_t ranks = mesh.size(groups::fsdp);
  if (ranks % mesh.ep == 0) return;
  core::fail(core::ErrorKind::deck,
             {deck,
              fmt::format("parallel.ep = {} does not divide the {} of parallel.dp_shard times "
                          "parallel.cp",
                          mesh.ep, ranks_text(ranks)),
              "the experts of each layer are shared out among groups of these",
              fmt::format("Use {}.", sizes_around(ranks, mesh.ep))});
}

}  // namespace

Mesh make_mesh(const ParallelSettings& settings, const Ranks& all, const std::string& deck) {
  core::check(all.world_size >= 1 && all.ranks_per_node >= 1, "a job has ranks");
  const std::int64_t parts = settings.num_tp() * settings.num_cp();
  const Ranks ranks = without_parts(settings, all, deck);
  require_no_contradiction(settings, ranks, deck);
  require_factors(settings, ranks, deck);
  Mesh mesh;
  const std::int64_t dp_shard = settings.dp_shard > 0 ? settings.dp_shard
                                : settings.dp_replicate > 0
                                    ? ranks.world_size / settings.dp_replicate
                                    : usual_dp_shard(settings.sharding, {all, parts, ranks}, deck);
  mesh.axes[Axis::dp_shard] = dp_shard;
  mesh.axes[Axis::dp_replicate] = ranks.world_size / dp_shard;
  mesh.axes[Axis::cp] = settings.num_cp();
  mesh.axes[Axis::tp] = settings.num_tp();
  mesh.ep = settings.num_ep();
  mesh.sharding = sharding_of(settings.sharding, mesh);
  mesh.alone = settings.alone;
  core::check(mesh.size() == all.world_size, "the mesh fills the world");
  require_ep(mesh, deck);
  return mesh;
}

bool is_mesh(const ParallelSettings& settings, const Ranks& ranks) {
  try {
    make_mesh(settings, ranks);
    return true;
  } catch (const core::Error&) {
    return false;
  }
}

namespace {

/// What keeps a copy of the model where nothing shards it: "rank", or "group of 2 ranks".
std::string holder_of_copy(const Mesh& mesh) {
  const std::int64_t parts = mesh.axes[Axis::tp] * mesh.axes[Axis::cp];
  return parts == 1 ? "rank" : fmt::format("group of {} ranks", parts);
}

std::string warning_of_one_copy(const Mesh& mesh) {
  const std::int64_t num = mesh.axes[Axis::dp_shard];
  const std::int64_t parts = mesh.axes[Axis::tp] * mesh.axes[Axis::cp];
  return core::to_string(
      {"parallel.sharding = HYBRID_SHARD", "all ranks form one shard group, as in FULL_SHARD",
       "there is one node, or one group spans them all",
       // Less than two groups would split nothing.
       num > 2 || parts == 1
           ? fmt::format("Set parallel.dp_shard to less than {} for more copies of the model.", num)
           : "Use FULL_SHARD, or lower parallel.tp or parallel.cp for more copies of the model."});
}

std::string warning_of_copies_across(const Mesh& mesh, const Ranks& ranks) {
  const std::int64_t parts = mesh.axes[Axis::tp] * mesh.axes[Axis::cp];
  const std::string of_copy = parts == 1
                                  ? fmt::format("parallel.dp_shard = {}", mesh.axes[Axis::dp_shard])
                                  : fmt::format("parallel.dp_shard = {}, times tp times cp = {}",
                                                mesh.axes[Axis::dp_shard], parts);
  const std::int64_t of_node = ranks.ranks_per_node / parts;
  return core::to_string(
      {of_copy,
       fmt::format("copies of the model lie across nodes of {} ranks", ranks.ranks_per_node),
       "every gather of weights then crosses the network between nodes",
       !ranks.is_even ? "Start as many ranks on every node."
       : ranks.ranks_per_node % parts != 0
           ? fmt::format("Copies fit into a node where tp times cp divides {}.",
                         ranks.ranks_per_node)
       : parts == 1 ? fmt::format("Inside a node: {}.", sizes_around(of_node, of_node))
                    : fmt::format("Inside a node: parallel.dp_shard = {}.",
                                  sizes_around(of_node, of_node))});
}

}  // namespace

std::vector<std::string> warnings(const Mesh& mesh, const Ranks& ranks) {
  std::vector<std::string> texts;
  const bool is_hybrid = mesh.sharding == Sharding::hybrid_shard;
  if (is_hybrid && mesh.size(groups::dp_replicate) == 1 && ranks.world_size > 1)
    texts.push_back(warning_of_one_copy(mesh));
  if (mesh.sharding == Sharding::full_shard && mesh.size(groups::dp_replicate) == 1 &&
      ranks.num_nodes > 1 && ranks.ranks_per_node > 1 && !ranks.is_even) {
    texts.push_back(core::to_string(
        {"parallel", "weights are gathered across nodes",
         "the nodes have different numbers of ranks, so none can hold a copy of the model alone",
         "Start as many ranks on every node for HYBRID_SHARD."}));
  }
  if (mesh.size(groups::dp_replicate) == 1) return texts;
  const std::int64_t a_copy = mesh.size(groups::one_copy);
  const bool is_inside = ranks.is_even && ranks.ranks_per_node % a_copy == 0;
  if (mesh.size(groups::fsdp) > 1 && ranks.num_nodes > 1 && !is_inside)
    texts.push_back(warning_of_copies_across(mesh, ranks));
  if (is_hybrid && mesh.size(groups::fsdp) == 1) {
    texts.push_back(core::to_string(
        {"parallel.sharding = \"HYBRID_SHARD\"", "splits nothing",
         fmt::format("every shard group has one rank, so each {} keeps a whole copy of the model",
                     holder_of_copy(mesh)),
         "Set parallel.dp_shard, or use FULL_SHARD."}));
  }
  return texts;
}

}  // namespace finetune::plan
