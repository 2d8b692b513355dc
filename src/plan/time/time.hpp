#pragma once
// SPDX-License-Identifier: Apache-2.0
// How long a step takes on a machine, and on what.

#include <optional>
#include <string>
#include <vector>

#include "plan/machine/machine.hpp"
#include "plan/plan.hpp"
#include "plan/time/traffic.hpp"

namespace finetune::plan {

/// A group of ranks in a step.
struct GroupTime {
  GroupTraffic traffic;
  double seconds = 0;    ///< its links are busy, hidden or not
  double exposed_s = 0;  ///< of activations in tp, cp and ep: the computation waits
};

/// Seconds of one step of the slowest rank; the parts add up to the whole.
struct TimePlan {
  double step_s = 0;
  double products_s = 0;
  double attention_s = 0;
  double memory_s = 0;   ///< passes over memory
  double program_s = 0;  ///< operations cannot be started faster
  double exposed_s = 0;  ///< waiting for communication
  double held_up_s = 0;  ///< waiting for activations on their way to or from the host
  double optimizer_s = 0;

  double communication_s = 0;     ///< links are busy, hidden or not
  double sent_by_node_bytes = 0;  ///< to other nodes
  double copying_s = 0;           ///< the link to the host is busy with activations
  std::vector<GroupTime> groups;  ///< those of several ranks
  double tokens_per_s = 0;        ///< over all ranks
  double tokens_per_s_of_rank = 0;
  double flops_per_s_of_rank = 0;  ///< of the model: nothing computed twice
  double mfu = 0;                  ///< of machine.peak_tflops; 0: not known

  double exposed_share() const { return exposed_s / step_s; }
};

/// Keys of the machine without which the time of such a job cannot be planned.
std::vector<std::string> missing_rates(const Machine& machine, const PlanInput& request);

/// The kernels of this program on such a machine.
Passes passes_of(const PlanInput& request);

/// The time of the step that `plan` plans for `request`; `table` is the family's. No rate that it
/// needs may be missing.
TimePlan plan_time(const Plan& plan, const PlanInput& request, const model::ParameterTable& table,
                   const Machine& machine, Passes passes);

/// Arithmetic of the model per token, forward and backward, over all ranks that share it: products
/// and attention of full sequences, nothing twice. Tokens per second times this is what MFU counts.
double model_flops_per_token(const Plan& plan, const PlanInput& request,
                             const model::ParameterTable& table);

}  // namespace finetune::plan
