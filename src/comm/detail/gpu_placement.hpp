#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which GPU of a node each of its ranks computes on: decided from what all of them see, so that
// tests can invent nodes.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace finetune::comm {

/// A GPU as one rank sees it.
struct SeenGpu {
  std::string uuid = {};
  std::string pci = {};  ///< address; parts of one GPU (MIG) have one, GPUs of a node never do
  int distance = -1;     ///< from the rank's cores (gpu_distance); -1: nobody knows
};

/// A rank of a node, in the order of their ranks.
struct NodeRank {
  int rank = 0;                    ///< in the world, for messages
  bool is_bound = false;           ///< to some of the node's cores
  std::vector<SeenGpu> gpus = {};  ///< by CUDA's number
};
std::string to_text(const NodeRank& rank);
NodeRank node_rank_from_text(std::string_view text);

/// By what GPUs were given to the ranks of a node.
enum class PlacedBy {
  launcher,    ///< each rank sees one
  nearness,    ///< to their cores
  order,       ///< of ranks: they are not bound to cores
  order_blind  ///< of ranks: the system does not say which cores are near which GPU
};
std::string to_string(PlacedBy by);

struct Placement {
  std::vector<int> device = {};  ///< of each rank, by the number that CUDA gave it there; -1: none
  PlacedBy by = PlacedBy::order;
};

/// Gives each rank that sees GPUs one of its own: so that all of them together are as near as they
/// can be, and otherwise in order. The same on every rank that calls it with the same ranks.
/// Throws: ErrorKind::environment naming a rank for which none is left.
Placement place_ranks(std::span<const NodeRank> ranks);

}  // namespace finetune::comm
