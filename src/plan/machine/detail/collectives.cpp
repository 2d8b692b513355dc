// SPDX-License-Identifier: Apache-2.0
#include "plan/machine/detail/collectives.hpp"

#include <algorithm>
#include <cmath>

namespace finetune::plan {
namespace {

/// Bytes that a node sends per byte of a sum: a term of each of its ranks to each rank of another
/// node, or its running sums to the node before it.
double terms_sent(const GroupShape& group) {
  const auto size = static_cast<double>(group.size);
  return group.ranks_per_node() * (size - group.ranks_per_node()) / size;
}
double sums_sent(const GroupShape& group, const Summed& summed) {
  const auto nodes = static_cast<double>(group.num_nodes);
  const double hops = summed.any_order ? nodes - 1 : nodes;
  return hops / nodes * static_cast<double>(summed.sum_bytes) /
         static_cast<double>(summed.element_bytes);
}

}  // namespace

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

bool Links::has_windows(const GroupShape& group) const {
  return by_mpi_ && group.num_nodes > 1 && group.ranks_per_node() > 1;
}

bool Links::is_chain(const GroupShape& group, const Summed& summed) const {
  return has_windows(group) && sums_sent(group, summed) < terms_sent(group);
}

double Links::all_gather_s(const GroupShape& group, double bytes) const {
  if (group.size == 1 || bytes <= 0) return 0;
  if (!by_mpi_) return ring_s(group, bytes);
  if (!has_windows(group)) return messages_s(group, bytes);
  // Each rank reads the whole while the next piece is on its way.
  const auto nodes = static_cast<double>(group.num_nodes);
  const double between_s = gathered_by_node(group, bytes) / inter_bytes_per_s_;
  return std::max(between_s, gather_copying_s(group, bytes)) + (nodes - 1) * inter_latency_s_ +
         intra_latency_s_;
}

double Links::reduce_scatter_s(const GroupShape& group, double bytes, const Summed& summed) const {
  if (group.size == 1 || bytes <= 0) return 0;
  if (!by_mpi_) return ring_s(group, bytes);
  if (!is_chain(group, summed)) return messages_s(group, bytes);
  const auto nodes = static_cast<double>(group.num_nodes);
  return reduced_by_node(group, bytes, summed) / inter_bytes_per_s_ + nodes * inter_latency_s_ +
         (nodes + 1) * intra_latency_s_;
}

double Links::all_reduce_s(const GroupShape& group, double bytes, const Summed& summed) const {
  if (group.size == 1 || bytes <= 0) return 0;
  if (by_mpi_) return reduce_scatter_s(group, bytes, summed) + all_gather_s(group, bytes);
  // NCCL takes trees where the latency of a ring would tell (Sanders, Speck and Traeff 2009,
  // doi 10.1016/j.parco.2009.09.001).
  const auto nodes = static_cast<double>(group.num_nodes);
  const double ring_latency_s = ring_s(group, 0);
  const double tree_latency_s = (group.ranks_per_node() - 1) * intra_latency_s_ +
                                std::ceil(std::log2(nodes)) * inter_latency_s_;
  return 2 * (ring_s(group, bytes) - ring_latency_s + std::min(ring_latency_s, tree_latency_s));
}

double Links::pass_around_s(const GroupShape& group, double bytes) const {
  return group.size == 1 || bytes <= 0 ? 0 : ring_s(group, bytes);
}

double Links::all_to_all_s(const GroupShape& group, double bytes) const {
  if (group.size == 1 || bytes <= 0) return 0;
  if (by_mpi_) return messages_s(group, bytes);
  // All messages are on their way at once, over both kinds of links.
  const auto size = static_cast<double>(group.size);
  const double on_node = group.ranks_per_node();
  const double inside_s = (on_node - 1) / size * bytes / intra_bytes_per_s_ + intra_latency_s_;
  if (group.num_nodes == 1) return inside_s;
  return std::max(inside_s, swapped_by_node(group, bytes) / inter_bytes_per_s_ + inter_latency_s_);
}

double Links::gather_copying_s(const GroupShape& group, double bytes) const {
  if (!by_mpi_ || group.ranks_per_node() <= 1) return 0;
  const auto size = static_cast<double>(group.size);
  // From windows everything but this rank's own part; else what messages of the node bring.
  const double others = has_windows(group) ? size - 1 : group.ranks_per_node() - 1;
  return others / size * bytes / intra_bytes_per_s_;
}

double Links::reduce_copying_s(const GroupShape& group, double bytes, const Summed& summed) const {
  if (!by_mpi_ || group.ranks_per_node() <= 1) return 0;
  // Terms are added where they were packed.
  if (is_chain(group, summed)) return 0;
  const double parts = (group.ranks_per_node() - 1) / static_cast<double>(group.size);
  return parts * bytes / intra_bytes_per_s_;
}

double Links::gathered_by_node(const GroupShape& group, double bytes) const {
  if (group.num_nodes == 1) return 0;
  const auto size = static_cast<double>(group.size), nodes = static_cast<double>(group.num_nodes);
  const auto groups = static_cast<double>(group.groups_per_node);
  return groups * bytes * (by_mpi_ ? (nodes - 1) / nodes : (size - 1) / size);
}

double Links::reduced_by_node(const GroupShape& group, double bytes, const Summed& summed) const {
  if (group.num_nodes == 1) return 0;
  if (!by_mpi_) return gathered_by_node(group, bytes);
  const auto groups = static_cast<double>(group.groups_per_node);
  return groups * bytes * (is_chain(group, summed) ? sums_sent(group, summed) : terms_sent(group));
}

double Links::passed_by_node(const GroupShape& group, double bytes) const {
  if (group.num_nodes == 1) return 0;
  const auto size = static_cast<double>(group.size);
  return static_cast<double>(group.groups_per_node) * bytes * (size - 1) / size;
}

double Links::swapped_by_node(const GroupShape& group, double bytes) const {
  if (group.num_nodes == 1) return 0;
  const auto size = static_cast<double>(group.size);
  const double on_node = group.ranks_per_node();
  return static_cast<double>(group.groups_per_node) * on_node * bytes * (size - on_node) / size;
}

std::int64_t window_bytes(const GroupShape& group) {
  constexpr std::int64_t kib = 1024;
  return 2 * std::clamp<std::int64_t>(64 * kib * group.num_nodes, 1024 * kib, 16 * 1024 * kib);
}

}  // namespace finetune::plan
