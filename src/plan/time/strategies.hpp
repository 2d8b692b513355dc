#pragma once
// SPDX-License-Identifier: Apache-2.0
// The strategies of sharding side by side: which fit, which is fastest, and why.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/time/time.hpp"

namespace finetune::plan {

/// A machine as a job sees it.
struct Site {
  Machine machine;
  Passes passes = Passes::fused;
  std::int64_t available_bytes = 0;       ///< a rank may use; 0: not known
  std::int64_t available_host_bytes = 0;  ///< the same of the host, where a rank has a GPU
  /// Whether blocks that are all recomputed may have their inputs on the host: what nothing else
  /// that a plan may choose can do without.
  bool offloads_inputs = false;
};

/// One way to arrange the ranks.
struct Strategy {
  PlanInput request;
  Mesh mesh;
  std::int64_t memory_bytes = 0;
  std::int64_t host_bytes = 0;  ///< in addition, in the host's memory
  bool fits_device = true;
  bool fits = true;
  bool is_comfortable = true;  ///< fits, and leaves_room
  TimePlan time;

  /// As the deck says it, and parallel.dp_shard behind it where that is not the ranks of a node.
  std::string name() const;
};

/// Whether a plan fills no more of the memory than choices may: it may be wrong by a few percent,
/// and experts that a rank holds may be chosen half as often again as on average. True where the
/// memory is not known.
bool leaves_room(const Plan& plan, const Site& site);

/// The mesh of `request` with micro-batches of one sequence, of two, four and so on, up to what a
/// rank has of a step; each with activations as plan_strategy chooses them. Ends with the first
/// that does not fit.
std::vector<Strategy> with_micro_batches(const PlanInput& request,
                                         const model::ParameterTable& table, const Site& site);

/// The plan of `request`. Where it chooses activations, with the fastest way to keep them that
/// fits comfortably (with_activations); where it chooses the micro-batch, with the fastest that
/// fits comfortably, else with one sequence. Of those that take the same time the smallest is
/// taken.
Strategy plan_strategy(const PlanInput& request, const model::ParameterTable& table,
                       const Site& site);

/// What the ranks of `request` can do: what it says itself, unless it leaves the sharding to the
/// plan, and each strategy with its usual groups. Those that fit come first, the fastest of them
/// first; of those that take the same time the one that needs least memory.
std::vector<Strategy> compare(const PlanInput& request, const model::ParameterTable& table,
                              const Site& site);

/// One sentence: why the first of `strategies` is faster than the next, with the numbers that make
/// the difference. Empty if there is nothing to compare it with.
std::string reason(const std::vector<Strategy>& strategies);

}  // namespace finetune::plan
