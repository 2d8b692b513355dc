// SPDX-License-Identifier: Apache-2.0
#include "world/world.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace finetune::world {

plan::Ranks count_ranks(const comm::Topology& topology) {
  return {.world_size = topology.world_size,
          .ranks_per_node = topology.ranks_per_node,
          .num_nodes = topology.num_nodes,
          .is_even = topology.world_size == topology.num_nodes * topology.ranks_per_node};
}

World make(const comm::Environment& environment, const plan::Plan& plan) {
  const comm::Communicator& all = environment.world();
  const plan::Mesh& mesh = plan.mesh;
  const std::int64_t filled = mesh.dp_replicate * mesh.dp_shard * mesh.cp * mesh.tp;
  if (filled != all.size()) {
    core::fail(core::ErrorKind::environment,
               {"parallel", fmt::format("the mesh has {} ranks, the job {}", filled, all.size()),
                "every rank has its place", "Start as many ranks as the mesh has."});
  }
  World world;
  world.world = all;
  world.node = environment.node();
  world.batch = all.split(0, all.rank(), "batch");
  world.fsdp = all.split(0, all.rank(), "fsdp");
  world.node_index = environment.topology().node_of_rank[static_cast<std::size_t>(all.rank())];
  return world;
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
  return text + fmt::format("; shard group: {} rank{}", world.fsdp.size(),
                            world.fsdp.size() == 1 ? "" : "s");
}

}  // namespace finetune::world
