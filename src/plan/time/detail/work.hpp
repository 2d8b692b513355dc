#pragma once
// SPDX-License-Identifier: Apache-2.0
// The arithmetic and the passes over memory of one micro-batch on one rank, stage by stage.

#include <vector>

#include "model/cost/cost.hpp"
#include "plan/machine/detail/rates.hpp"
#include "plan/plan.hpp"

namespace finetune::plan {

/// Of one micro-batch.
struct StageWork {
  Work forward;
  Work backward;
  Work again;                  ///< of the forward pass, in backward: activation_checkpointing
  bool is_recomputed = false;  ///< the whole block, before its backward pass
};

struct MicroBatchWork {
  StageWork embedding;
  std::vector<StageWork> blocks;
  StageWork head;  ///< with the loss, whose gradient comes with it

  Work total() const;
  /// Without what is computed twice or unpacked: what MFU counts.
  double model_flops() const;
};

/// What ops do, on such a machine.
Work timed(const model::OpWork& of, const Rates& rates);

/// What model::CostOps counts, in the time of a machine. All sequences are full, and nothing is
/// packed: the longest a step can take.
MicroBatchWork plan_work(const PlanInput& request, const model::ParameterTable& table,
                         const Rates& rates, Passes passes);

}  // namespace finetune::plan
