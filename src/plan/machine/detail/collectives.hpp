#pragma once
// SPDX-License-Identifier: Apache-2.0
// Seconds of a collective among ranks on nodes: every message takes a latency and the time of its
// bytes on the slowest link (alpha-beta, Thakur et al. 2005, doi 10.1177/1094342005051521).

#include <cstdint>

#include "plan/machine/group_shape.hpp"
#include "plan/machine/machine.hpp"

namespace finetune::plan {

/// Elements of a sum: on the wire, and as they are added.
struct Summed {
  std::int64_t element_bytes = 4;
  std::int64_t sum_bytes = 4;
  bool any_order = false;  ///< integers: bits do not depend on the order of terms
};

/// What passes is counted as comm::MpiGroup and NCCL send it.
///
/// MPI: every rank sends its part to each other one, a message per round. Where several nodes have
/// several ranks each, parts of a gather go to each other node once, and are read there from shared
/// memory; sums go from node to node, if that takes fewer bytes than a message from each rank.
/// NCCL: rings through all ranks, so that bytes cross from node to node once, whatever the ranks of
/// a node.
class Links {
 public:
  Links(const Machine& machine, bool by_mpi);

  /// Each rank has 1 / size of `bytes` and gets the whole.
  double all_gather_s(const GroupShape& group, double bytes) const;
  /// Each rank has `bytes` and gets the sum of 1 / size of them.
  double reduce_scatter_s(const GroupShape& group, double bytes, const Summed& summed = {}) const;
  /// Each rank has `bytes` and gets their sum.
  double all_reduce_s(const GroupShape& group, double bytes, const Summed& summed = {}) const;

  /// Each rank has 1 / size of `bytes`, which pass by all others one after the other.
  double pass_around_s(const GroupShape& group, double bytes) const;
  /// Each rank has 1 / size of `bytes` for each.
  double all_to_all_s(const GroupShape& group, double bytes) const;

  /// Of an all_gather: copies inside the node, which the ranks' own cores make where MPI carries
  /// them; 0 where GPUs do.
  double gather_copying_s(const GroupShape& group, double bytes) const;
  double reduce_copying_s(const GroupShape& group, double bytes, const Summed& summed = {}) const;

  /// What a node sends to others in an all_gather, and in a reduce_scatter. In an all_reduce both.
  double gathered_by_node(const GroupShape& group, double bytes) const;
  double reduced_by_node(const GroupShape& group, double bytes, const Summed& summed = {}) const;
  /// The same when they pass around, and in an all_to_all.
  double passed_by_node(const GroupShape& group, double bytes) const;
  double swapped_by_node(const GroupShape& group, double bytes) const;

  /// Whether ranks of a node share memory, for gathers at least.
  bool has_windows(const GroupShape& group) const;

 private:
  bool is_chain(const GroupShape& group, const Summed& summed) const;
  double messages_s(const GroupShape& group, double bytes) const;
  double ring_s(const GroupShape& group, double bytes) const;

  bool by_mpi_;
  double intra_bytes_per_s_;
  double intra_latency_s_;
  double inter_bytes_per_s_;
  double inter_latency_s_;
};

/// Shared memory of each rank of such a group, as comm::window_half_bytes has it.
std::int64_t window_bytes(const GroupShape& group);

}  // namespace finetune::plan
