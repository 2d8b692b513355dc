// SPDX-License-Identifier: Apache-2.0
#include "plan/time/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.hpp"
#include "core/text.hpp"
#include "plan/machine/machine_file.hpp"

namespace finetune::plan {
namespace {

constexpr std::int64_t most_ranks = std::int64_t{1} << 24;
/// Of a node's memory: the system has its own, and schedulers hand out less than there is.
constexpr double asked_of_node = 0.9, usable_of_node = 0.94;

[[noreturn]] void refuse(const std::string& where, const std::string& problem,
                         const std::string& why, const std::string& remedy) {
  core::fail(core::ErrorKind::command_line, {where, problem, why, remedy});
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

void require_consistent(const JobShape& shape) {
  if (!shape.nodes || !shape.ranks) return;
  const std::int64_t nodes = *shape.nodes, ranks = *shape.ranks;
  if (ranks < nodes)
    refuse(fmt::format("--nodes {} --ranks {}", nodes, ranks), "a node would have no rank", "",
           fmt::format("Say --nodes {} or fewer, or leave --nodes out.", ranks));
  if (!shape.ranks_per_node || nodes * *shape.ranks_per_node == ranks) return;
  refuse(
      fmt::format("--nodes {} --ranks-per-node {} --ranks {}", nodes, *shape.ranks_per_node, ranks),
      fmt::format("{} x {} are {} ranks", nodes, *shape.ranks_per_node,
                  nodes * *shape.ranks_per_node),
      "ranks are nodes x ranks of a node", "Leave one of the three out.");
}

/// More than one rank per GPU is only for machines whose file says so.
void require_gpus(const Ranks& ranks, const Machine& machine) {
  const std::int64_t most = std::max(machine.gpus_per_node, machine.ranks_per_node);
  if (machine.gpus_per_node == 0 || ranks.ranks_per_node <= most) return;
  refuse(
      fmt::format("{} ranks on {}", core::with_commas(ranks.world_size),
                  ranks.num_nodes == 1 ? "a node" : core::with_commas(ranks.num_nodes) + " nodes"),
      fmt::format("a node would have {} ranks", ranks.ranks_per_node),
      fmt::format("it has {} GPUs, and each rank computes on one of its own",
                  machine.gpus_per_node),
      fmt::format("Say --nodes {} or more, or fewer ranks.", ceil_divide(ranks.world_size, most)));
}

std::int64_t full_ranks_per_node(const Machine& machine, const Ranks& ranks) {
  return std::max({ranks.ranks_per_node, machine.ranks_per_node, machine.gpus_per_node});
}

double node_bytes(const Machine& machine) {
  return machine.node_memory_gib * 0x1p30;
}

}  // namespace

Ranks ranks_of(const JobShape& shape, const Machine* machine) {
  require_consistent(shape);
  const std::int64_t usual =
      shape.ranks_per_node.value_or(machine != nullptr ? usual_ranks_per_node(*machine) : 1);
  const std::int64_t ranks = shape.ranks.value_or(shape.nodes.value_or(1) * usual);
  if (ranks > most_ranks)
    refuse("finetune plan", core::with_commas(ranks) + " ranks are more than it can plan",
           core::with_commas(most_ranks) + " is the most",
           "Make --nodes or --ranks-per-node smaller.");
  std::int64_t of_node = usual;
  if (shape.ranks && !shape.ranks_per_node) {
    if (shape.nodes)
      of_node = ceil_divide(ranks, *shape.nodes);
    else if (machine == nullptr)
      of_node = ranks;
  }
  const std::int64_t nodes = shape.nodes.value_or(ceil_divide(ranks, of_node));
  of_node = std::min(ranks, of_node);
  const Ranks all = {.world_size = ranks,
                     .ranks_per_node = of_node,
                     .num_nodes = nodes,
                     .is_even = ranks == nodes * of_node};
  if (machine != nullptr) require_gpus(all, *machine);
  return all;
}

void require_even(const Ranks& ranks) {
  if (ranks.is_even) return;
  const std::int64_t of_node = ranks.ranks_per_node;
  const std::int64_t fewer = ranks.world_size / of_node * of_node;
  std::int64_t divisor = of_node;
  while (ranks.world_size % divisor != 0)
    --divisor;
  std::string remedy =
      fmt::format("Say --ranks {} or {} with --ranks-per-node {}", fewer, fewer + of_node, of_node);
  if (divisor > 1)
    remedy +=
        fmt::format(", or --ranks-per-node {} for {} nodes", divisor, ranks.world_size / divisor);
  refuse(fmt::format("{} ranks on {} nodes", ranks.world_size, ranks.num_nodes),
         fmt::format("they do not fill nodes of {}", of_node),
         "a jobscript asks for as many ranks on every node", remedy + '.');
}

std::int64_t steps_of(std::int64_t samples, std::int64_t global_batch, double epochs) {
  // Beyond 2^53 a real number does not count every step.
  constexpr double most = 9007199254740992;
  const double steps = static_cast<double>(ceil_divide(samples, global_batch)) * epochs;
  if (steps >= most) return static_cast<std::int64_t>(most);
  // 1.1 epochs of 10 steps are 11, though their product is a little more.
  constexpr double rounding = 1e-12;
  const double nearest = std::round(steps);
  const bool is_whole = nearest > 0 && std::abs(steps - nearest) <= rounding * nearest;
  return static_cast<std::int64_t>(is_whole ? nearest : std::ceil(steps));
}

std::int64_t cores_per_rank(const Machine& machine, const Ranks& ranks) {
  return std::max<std::int64_t>(1, machine.cores_per_node / full_ranks_per_node(machine, ranks));
}

std::int64_t usable_host_bytes(const Machine& machine, std::int64_t ranks_per_node) {
  return static_cast<std::int64_t>(usable_of_node * node_bytes(machine) /
                                   static_cast<double>(ranks_per_node));
}

std::int64_t node_memory_to_ask(const Machine& machine, const Ranks& ranks,
                                std::int64_t needed_bytes) {
  const double node = node_bytes(machine);
  if (node <= 0) return machine.gpus_per_node > 0 ? 0 : needed_bytes;
  double bytes = static_cast<double>(needed_bytes);
  if (machine.gpus_per_node > 0) {
    const double part = static_cast<double>(ranks.ranks_per_node) /
                        static_cast<double>(full_ranks_per_node(machine, ranks));
    bytes = std::max(bytes, asked_of_node * part * node);
  }
  return static_cast<std::int64_t>(std::min(bytes, node));
}

}  // namespace finetune::plan
