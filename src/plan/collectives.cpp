// SPDX-License-Identifier: Apache-2.0
#include "plan/collectives.hpp"

#include <algorithm>
#include <cmath>

namespace finetune::plan {
namespace {

std::int64_t ceil_of(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

GroupShape shard_group(const Mesh& mesh, const Ranks& ranks) {
  GroupShape group{.size = mesh.dp_shard};
  group.num_nodes = std::min(ceil_of(mesh.dp_shard, ranks.ranks_per_node), ranks.num_nodes);
  if (group.num_nodes == 1)
    group.groups_per_node = std::max<std::int64_t>(1, ranks.ranks_per_node / mesh.dp_shard);
  return group;
}

GroupShape replica_group(const Mesh& mesh, const Ranks& ranks) {
  GroupShape group{.size = mesh.dp_replicate};
  // Neighbours share a copy: those of other copies lie as many ranks apart.
  const std::int64_t copies_per_node =
      std::max<std::int64_t>(1, ranks.ranks_per_node / mesh.dp_shard);
  group.num_nodes = std::min(ceil_of(mesh.dp_replicate, copies_per_node), ranks.num_nodes);
  group.groups_per_node = std::min(mesh.dp_shard, ranks.ranks_per_node);
  return group;
}

Links::Links(const Machine& machine, bool by_mpi)
    : by_mpi_(by_mpi),
      intra_bytes_per_s_(1e9 * machine.intra_gb_per_s),
      intra_latency_s_(1e-6 * machine.intra_latency_us),
      inter_bytes_per_s_(1e9 * machine.inter_gb_per_s),
      inter_latency_s_(1e-6 * machine.inter_latency_us) {}

/// Rounds to ranks of the same node and rounds to others follow each other.
double Links::messages_s(const GroupShape& group, double bytes) const {
  const auto size = static_cast<double>(group.size);
  const double on_node = group.ranks_per_node();
  const double part = bytes / size;
  double seconds = (on_node - 1) * intra_latency_s_;
  if (on_node > 1) seconds += (on_node - 1) * part / intra_bytes_per_s_;
  if (group.num_nodes > 1) {
    const double senders = on_node * static_cast<double>(group.groups_per_node);
    seconds += (size - on_node) * (inter_latency_s_ + senders * part / inter_bytes_per_s_);
  }
  return seconds;
}

/// All links of the ring work at once, so the slowest counts; each hop delays what passes it.
double Links::ring_s(const GroupShape& group, double bytes) const {
  const auto size = static_cast<double>(group.size), nodes = static_cast<double>(group.num_nodes);
  const double passing = bytes * (size - 1) / size;
  double seconds = group.ranks_per_node() > 1 ? passing / intra_bytes_per_s_ : 0;
  if (group.num_nodes == 1) return seconds + (size - 1) * intra_latency_s_;
  const auto rings = static_cast<double>(group.groups_per_node);
  seconds = std::max(seconds, rings * passing / inter_bytes_per_s_);
  return seconds + (size - nodes) * intra_latency_s_ + (nodes - 1) * inter_latency_s_;
}

double Links::all_gather_s(const GroupShape& group, double bytes) const {
  if (group.size == 1 || bytes <= 0) return 0;
  return by_mpi_ ? messages_s(group, bytes) : ring_s(group, bytes);
}

double Links::reduce_scatter_s(const GroupShape& group, double bytes) const {
  return all_gather_s(group, bytes);
}

double Links::all_reduce_s(const GroupShape& group, double bytes) const {
  if (group.size == 1 || bytes <= 0) return 0;
  if (by_mpi_) return 2 * messages_s(group, bytes);
  // NCCL takes trees where the latency of a ring would tell (Sanders, Speck and Traeff 2009,
  // doi 10.1016/j.parco.2009.09.001).
  const auto nodes = static_cast<double>(group.num_nodes);
  const double ring_latency_s = ring_s(group, 0);
  const double tree_latency_s = (group.ranks_per_node() - 1) * intra_latency_s_ +
                                std::ceil(std::log2(nodes)) * inter_latency_s_;
  return 2 * (ring_s(group, bytes) - ring_latency_s + std::min(ring_latency_s, tree_latency_s));
}

double Links::copying_s(const GroupShape& group, double bytes) const {
  if (!by_mpi_ || group.ranks_per_node() <= 1) return 0;
  const double parts = (group.ranks_per_node() - 1) / static_cast<double>(group.size);
  return parts * bytes / intra_bytes_per_s_;
}

double Links::sent_by_node(const GroupShape& group, double bytes) const {
  if (group.num_nodes == 1) return 0;
  const auto size = static_cast<double>(group.size);
  const auto groups = static_cast<double>(group.groups_per_node);
  const double on_node = group.ranks_per_node();
  return groups * (by_mpi_ ? on_node * (size - on_node) / size : (size - 1) / size) * bytes;
}

}  // namespace finetune::plan
