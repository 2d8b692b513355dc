#pragma once
// SPDX-License-Identifier: Apache-2.0
// A job on a machine: its ranks and nodes, and what it asks of each node.

#include <cstdint>
#include <optional>

#include "plan/layout/mesh.hpp"
#include "plan/machine/machine.hpp"

namespace finetune::plan {

/// What a command line says of a job; the rest follows.
struct JobShape {
  std::optional<std::int64_t> ranks;
  std::optional<std::int64_t> nodes;
  std::optional<std::int64_t> ranks_per_node;
};

/// The ranks of a job on `machine`, or where nobody knows the machine (null). Where only ranks and
/// ranks of a node are said, the last node may have fewer.
/// Throws: ErrorKind::command_line where the numbers contradict each other, or a node has fewer
/// GPUs than ranks.
Ranks ranks_of(const JobShape& shape, const Machine* machine);

/// Refuses ranks that do not fill their nodes: a scheduler would start more of them.
/// Throws: ErrorKind::command_line naming numbers that fill them.
void require_even(const Ranks& ranks);

/// Optimizer steps of `epochs` > 0 over `samples` sequences, as the trainer makes them: the last
/// step of an epoch may have fewer, and a part of an epoch ends at the next whole step.
std::int64_t steps_of(std::int64_t samples, std::int64_t global_batch, double epochs);

/// A rank's cores: its part of a node that is full. At least one.
std::int64_t cores_per_rank(const Machine& machine, const Ranks& ranks);

/// Host memory that each of the ranks of a node may use. 0: not known.
std::int64_t usable_host_bytes(const Machine& machine, std::int64_t ranks_per_node);

/// Host memory to ask for on each node, 0: leave it to the scheduler. Never more than a node has.
///
/// `needed_bytes` is what a plan counts of the ranks of a node. With GPUs that is the smaller part:
/// the libraries of CUDA, pinned buffers, cached files and the data come on top, so that such a job
/// asks at least for its part of the node's memory.
std::int64_t node_memory_to_ask(const Machine& machine, const Ranks& ranks,
                                std::int64_t needed_bytes);

}  // namespace finetune::plan
