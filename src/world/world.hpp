#pragma once
// SPDX-License-Identifier: Apache-2.0
// With whom: the communicators of this rank, named by use.

#include <optional>
#include <string>
#include <vector>

#include "comm/device.hpp"
#include "comm/environment.hpp"
#include "plan/plan.hpp"

namespace finetune::world {

/// The groups of `plan::groups`, and some more. Communicators are handles: copying one costs
/// nothing, and each is passed to its users.
struct World {
  comm::Communicator world;         ///< every rank
  comm::Communicator node;          ///< ranks that share memory with this one
  comm::Communicator batch;         ///< ranks that see different samples
  comm::Communicator fsdp;          ///< ranks that together hold one copy of the model
  comm::Communicator dp_replicate;  ///< ranks that hold the same shard of different copies
  comm::Communicator loss;          ///< ranks with different tokens
  comm::Communicator cp;            ///< ranks with parts of the same samples
  comm::Communicator tp;            ///< ranks with parts of every matrix, and the same tokens
  comm::Communicator ep;            ///< ranks of fsdp that share the experts of a layer
  comm::Communicator expert_fsdp;   ///< ranks of fsdp that hold shards of the same experts
  int node_index = 0;
  /// The rank on the next node that keeps copies of what this one saves on its node; nothing if all
  /// ranks are on one node.
  std::optional<int> partner = {};
  std::string host = "localhost";  ///< of this rank
  comm::Device device;             ///< what this rank computes with
};

/// The job's ranks as a plan counts them.
plan::Ranks count_ranks(const comm::Topology& topology);

/// Collective on the environment's world. Throws: ErrorKind::environment if the mesh does not fill
/// it.
World make(const comm::Environment& environment, const plan::Plan& plan, comm::Device device = {});

/// The position of each rank in the order of the mesh (plan::AxisSizes::place). Ranks are taken
/// node by node, whatever order the launcher numbered them in, so that a shard group lies inside a
/// node where it can.
std::vector<std::int64_t> positions(const comm::Topology& topology);

/// The rank on the node after that of `rank`, the last one's being the first, that has as many
/// ranks of its node before it; round again where that node has fewer. Nothing on one node.
std::optional<int> partner_of(int rank, const comm::Topology& topology);

/// A world of this process alone, without MPI.
World make_alone();

/// The first lines of a run: ranks, nodes, and which ranks form a shard group.
std::string to_string(const plan::Mesh& mesh, const comm::Topology& topology);

}  // namespace finetune::world
