// SPDX-License-Identifier: Apache-2.0
#include "world/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"

namespace finetune::world {

plan::Ranks count_ranks(const comm::Topology& topology) {
  return {.world_size = topology.world_size,
          .ranks_per_node = topology.ranks_per_node,
          .num_nodes = topology.num_nodes,
          .is_even = topology.world_size == topology.num_nodes * topology.ranks_per_node};
}

World make(const comm::Environment& environment, const plan::Plan& plan, comm::Device device) {
  const comm::Communicator& all = environment.world();
  const plan::Mesh& mesh = plan.mesh;
  const std::int64_t filled = mesh.size();
  if (filled != all.size()) {
    core::fail(core::ErrorKind::environment,
               {"parallel", fmt::format("the mesh has {} ranks, the job {}", filled, all.size()),
                "every rank has its place", "Start as many ranks as the mesh has."});
  }
  World world;
  world.world = all;
  world.device = std::move(device);
  world.node = environment.node();
  world.batch = all.split(0, all.rank(), "batch");
  const Place place = places(mesh, environment.topology())[static_cast<std::size_t>(all.rank())];
  world.fsdp = all.split(place.copy, place.shard, "fsdp");
  world.dp_replicate = all.split(place.shard, place.copy, "dp_replicate");
  const comm::Topology& topology = environment.topology();
  world.node_index = topology.node_of_rank[static_cast<std::size_t>(all.rank())];
  world.host = topology.node_names[static_cast<std::size_t>(world.node_index)];
  return world;
}

std::vector<Place> places(const plan::Mesh& mesh, const comm::Topology& topology) {
  std::vector<std::size_t> order(topology.node_of_rank.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return topology.node_of_rank[a] < topology.node_of_rank[b];
  });
  std::vector<Place> places(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto position = static_cast<std::int64_t>(i);
    places[order[i]] = {.copy = static_cast<int>(position / mesh.dp_shard),
                        .shard = static_cast<int>(position % mesh.dp_shard)};
  }
  return places;
}

World make_alone() {
  return {};
}

std::string to_string(const World& world, const comm::Topology& topology) {
  std::string text = fmt::format("{} rank{} on {} node{}:", topology.world_size,
                                 topology.world_size == 1 ? "" : "s", topology.num_nodes,
                                 topology.num_nodes == 1 ? "" : "s");
  for (int node = 0; node < topology.num_nodes && node < 16; ++node) {
    std::string ranks;
    for (std::size_t rank = 0; rank < topology.node_of_rank.size(); ++rank) {
      if (topology.node_of_rank[rank] == node)
        ranks += fmt::format("{}{}", ranks.empty() ? "" : ",", rank);
    }
    text += fmt::format(" {} ({})", topology.node_names[static_cast<std::size_t>(node)], ranks);
  }
  if (topology.num_nodes > 16) text += fmt::format(" and {} more", topology.num_nodes - 16);
  text += fmt::format("; {} cop{} of the model, ", world.dp_replicate.size(),
                      world.dp_replicate.size() == 1 ? "y" : "ies");
  if (world.fsdp.size() == 1) return text + "each whole on its rank";
  return text + fmt::format("each over {} ranks{}", world.fsdp.size(), "");
}

}  // namespace finetune::world
