#pragma once
// SPDX-License-Identifier: Apache-2.0
// The same job on more and on fewer nodes.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/time/strategies.hpp"

namespace finetune::plan {

enum class Scaling {
  weak,    ///< the global batch grows with the nodes
  strong,  ///< it stays
};

struct ScalingRow {
  std::int64_t num_nodes = 1;
  std::int64_t global_batch = 1;
  Strategy strategy;
  bool has_idle_ranks = false;  ///< there are fewer sequences per step than ranks
  double efficiency = 1;        ///< tokens/s of a rank, of those on the fewest nodes that fit
};

/// 1, 2, 4, ... nodes and those of `request`, to four times as many, if the network is known. Each
/// row has the strategy that is fastest there of those that fit; rows in which none fits are left
/// out. Nodes are full: request.ranks.ranks_per_node each. Micro-batches are smaller where ranks
/// would have none. Weak scaling leaves out nodes where ranks have none even so, but not those of
/// `request`: efficiency next to them would say nothing.
std::vector<ScalingRow> scale(const PlanInput& request, const model::ParameterTable& table,
                              const Site& site, Scaling scaling);

}  // namespace finetune::plan
