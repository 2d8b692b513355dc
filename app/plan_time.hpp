#pragma once
// SPDX-License-Identifier: Apache-2.0
// What `finetune plan --machine` reports in addition to memory: time, strategies, the run,
// checkpoints, scaling.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/time/saving.hpp"
#include "plan/time/scaling.hpp"
#include "plan/time/time.hpp"

namespace finetune::app {

/// The run around the steps.
struct RunLength {
  std::int64_t num_steps = 0;  ///< 0: follows from the data, which a plan does not read
  double epochs = 1;
};

/// "time on 8 H100, ...": a step by what it is spent on, and its speed.
std::string time_text(const plan::Plan& plan, const plan::PlanInput& request,
                      const plan::Machine& machine, const plan::TimePlan& time);

/// A line each, the deck's own marked, and why the first is fastest.
std::string strategies_text(const std::vector<plan::Strategy>& strategies, const plan::Mesh& own);

/// The same of meshes, of many the first: those that fit, and this plan's in any case; below each
/// what its ranks send by axis, inside the node and to others.
std::string meshes_text(const std::vector<plan::Strategy>& meshes, const plan::Mesh& own);

/// Hours and node-hours.
std::string run_text(const plan::Plan& plan, const plan::TimePlan& time, const RunLength& run);

std::string saving_text(const plan::SavingPlan& saving, const plan::SavingRules& rules);

/// A row each for a number of nodes; hours are those of `num_tokens`, 0: not known.
std::string scaling_text(const std::vector<plan::ScalingRow>& rows, plan::Scaling scaling,
                         double num_tokens);

/// "45.1 ms", "1.23 s", "12.3 min", "2.5 h".
std::string duration(double seconds);

}  // namespace finetune::app
