#pragma once
// SPDX-License-Identifier: Apache-2.0
// Meshes of tensor, context and expert parallelism side by side.

#include <vector>

#include "plan/time/strategies.hpp"

namespace finetune::plan {

/// Which of parallel.tp, cp and ep vary.
struct OpenAxes {
  bool tp = false;
  bool cp = false;
  bool ep = false;

  bool any() const { return tp || cp || ep; }
};
/// Those that the deck leaves to the plan.
OpenAxes open_axes(const ParallelSettings& parallel);

/// Meshes of the ranks of `request` that differ along the open axes: powers of two, tp inside a
/// node. Sequences are cut into no more parts than it takes to fit without recomputation, and no
/// shorter than some hundred tokens; experts are shared by a node's ranks, by several nodes' or by
/// as many as there are. Each with the sharding of `request`, or, where it says none, the one of
/// FULL_SHARD and HYBRID_SHARD that is faster. Those that fit come first, the fastest of them
/// first.
std::vector<Strategy> compare_meshes(const PlanInput& request, const model::ParameterTable& table,
                                     const Site& site, const OpenAxes& open);

}  // namespace finetune::plan
