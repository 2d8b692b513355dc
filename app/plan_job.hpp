#pragma once
// SPDX-License-Identifier: Apache-2.0
// The job that a planned run asks a scheduler for.

#include <string>

#include "commands.hpp"
#include "jobscript.hpp"
#include "plan/machine/machine.hpp"
#include "plan/plan.hpp"

namespace finetune::app {

/// Of a walltime, and of memory: what a plan may be wrong by.
inline constexpr double plan_margin = 1.15;
/// No scheduler counts further.
inline constexpr double longest_walltime_s = 1e9;

/// What a job asks for, but for its time. What `machine` does not tell is left to the scheduler.
Job job_of(const Arguments& arguments, const plan::PlanInput& request, const plan::Plan& plan,
           const plan::Machine& machine);

/// The job of nodes whose rates nobody knows: as long as the queue allows.
std::string script_without_rates(const Arguments& arguments, const plan::PlanInput& request,
                                 const plan::Plan& plan, const plan::Machine& machine);

}  // namespace finetune::app
