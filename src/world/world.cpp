// SPDX-License-Identifier: Apache-2.0
#include "world/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

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
  const comm::Topology& topology = environment.topology();
  const std::int64_t position = positions(topology)[static_cast<std::size_t>(all.rank())];
  const auto split = [&](const plan::MeshGroup& group, bool in_order_of_ranks) {
    const auto place = mesh.axes.place(group, position);
    return all.split(static_cast<int>(place.group),
                     in_order_of_ranks ? all.rank() : static_cast<int>(place.number), group.name);
  };
  // Samples are dealt by rank.
  world.batch = split(plan::groups::batch, true);
  world.fsdp = split(plan::groups::fsdp, false);
  world.dp_replicate = split(plan::groups::dp_replicate, false);
  // Of one rank each where nothing is shared: without a call, which at many ranks takes time.
  world.loss = world.batch;
  if (mesh.size(plan::groups::cp) > 1) {
    world.loss = split(plan::groups::loss, true);
    world.cp = split(plan::groups::cp, false);
  }
  if (mesh.size(plan::groups::tp) > 1) world.tp = split(plan::groups::tp, false);
  world.expert_fsdp = world.fsdp;
  if (mesh.ep > 1) {
    const int ep = static_cast<int>(mesh.ep), number = world.fsdp.rank();
    world.ep = world.fsdp.split(number / ep, number, plan::groups::ep_name);
    world.expert_fsdp = world.fsdp.split(number % ep, number, plan::groups::expert_fsdp_name);
  }
  world.node_index = topology.node_of_rank[static_cast<std::size_t>(all.rank())];
  world.host = topology.node_names[static_cast<std::size_t>(world.node_index)];
  world.partner = partner_of(all.rank(), topology);
  return world;
}

std::vector<std::int64_t> positions(const comm::Topology& topology) {
  std::vector<std::size_t> order(topology.node_of_rank.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return topology.node_of_rank[a] < topology.node_of_rank[b];
  });
  std::vector<std::int64_t> positions(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    positions[order[i]] = static_cast<std::int64_t>(i);
  return positions;
}

World make_alone() {
  return {};
}

namespace {

// Of a large job a few tell what is usual.
constexpr int listed = 16;

/// " n1 (0,2) n2 (1)": ranks by group, of which there may be names.
std::string groups_of(const std::vector<int>& group_of_rank, int num_groups,
                      const std::vector<std::string>& names) {
  std::string text;
  for (int group = 0; group < num_groups && group < listed; ++group) {
    std::string ranks;
    for (std::size_t rank = 0; rank < group_of_rank.size(); ++rank) {
      if (group_of_rank[rank] == group)
        ranks += fmt::format("{}{}", ranks.empty() ? "" : ",", rank);
    }
    if (!names.empty()) text += " " + names[static_cast<std::size_t>(group)];
    text += fmt::format(" ({})", ranks);
  }
  if (num_groups > listed) text += fmt::format(" and {} more", num_groups - listed);
  return text;
}

}  // namespace

std::optional<int> partner_of(int rank, const comm::Topology& topology) {
  if (topology.num_nodes < 2) return std::nullopt;
  const std::vector<int>& node_of = topology.node_of_rank;
  const int own_node = node_of[static_cast<std::size_t>(rank)];
  const auto before = std::count(node_of.begin(), node_of.begin() + rank, own_node);
  std::vector<int> next;
  for (std::size_t other = 0; other < node_of.size(); ++other) {
    if (node_of[other] == (own_node + 1) % topology.num_nodes)
      next.push_back(static_cast<int>(other));
  }
  return next[static_cast<std::size_t>(before) % next.size()];
}

std::string to_string(const plan::Mesh& mesh, const comm::Topology& topology) {
  std::string text = fmt::format("{} rank{} on {} node{}:", topology.world_size,
                                 topology.world_size == 1 ? "" : "s", topology.num_nodes,
                                 topology.num_nodes == 1 ? "" : "s");
  text += groups_of(topology.node_of_rank, topology.num_nodes, topology.node_names);
  const std::int64_t num_copies = mesh.size(plan::groups::dp_replicate);
  if (mesh.size() == 1) return text + "; one copy of the model";
  if (num_copies == mesh.size()) return text + "; a copy of the model on every rank";
  const std::vector<std::int64_t> position = positions(topology);
  std::vector<int> copy_of_rank;
  for (const std::int64_t each : position)
    copy_of_rank.push_back(static_cast<int>(mesh.axes.place(plan::groups::one_copy, each).group));
  text += fmt::format("; {} cop{} of the model, over ranks", num_copies,
                      num_copies == 1 ? "y" : "ies") +
          groups_of(copy_of_rank, static_cast<int>(num_copies), {});
  for (const auto& [group, what] :
       {std::pair(plan::groups::tp, "matrices"), std::pair(plan::groups::cp, "sequences")}) {
    const std::int64_t size = mesh.size(group);
    if (size == 1) continue;
    std::vector<int> group_of_rank;
    for (const std::int64_t each : position)
      group_of_rank.push_back(static_cast<int>(mesh.axes.place(group, each).group));
    text += fmt::format("; {} shared by {} ranks each:", what, size) +
            groups_of(group_of_rank, static_cast<int>(mesh.size() / size), {});
  }
  if (mesh.ep > 1) {
    const std::int64_t of_fsdp = mesh.size(plan::groups::fsdp);
    std::vector<int> group_of_rank;
    for (const std::int64_t each : position) {
      const auto place = mesh.axes.place(plan::groups::fsdp, each);
      group_of_rank.push_back(static_cast<int>((place.group * of_fsdp + place.number) / mesh.ep));
    }
    text += fmt::format("; experts shared by {} ranks each:", mesh.ep) +
            groups_of(group_of_rank, static_cast<int>(mesh.size() / mesh.ep), {});
  }
  return text;
}

}  // namespace finetune::world
