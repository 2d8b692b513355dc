#pragma once
// SPDX-License-Identifier: Apache-2.0
// The arithmetic and the passes over memory of one micro-batch on one rank, stage by stage.

#include <vector>

#include "plan/plan.hpp"
#include "plan/rates.hpp"

namespace finetune::plan {

/// How the passes other than products are computed.
enum class Passes {
  fused,     ///< one kernel each: ours on the CPU, what a compiler for GPUs makes
  composed,  ///< of ATen's operations, with intermediate results in fp32
};

/// Of one micro-batch.
struct StageWork {
  Work forward;
  Work backward;
  Work again;  ///< of the forward pass, in backward: activation_checkpointing
};

struct MicroBatchWork {
  StageWork embedding;
  std::vector<StageWork> blocks;
  StageWork head;  ///< with the loss, whose gradient comes with it

  Work total() const;
  /// Without what is computed twice or unpacked: what MFU counts.
  double model_flops() const;
};

/// Products: 2 flops a weight and token forward, 2 for the gradient of the input, 2 for that of the
/// weight where it is trained, so 6 or, frozen, 4 (Kaplan et al. 2020, arXiv 2001.08361); low-rank
/// parts on top; of experts the chosen ones. Attention: 4 flops per head channel and visible
/// token forward, 10 backward (Dao 2023, arXiv 2307.08691). A frozen weight in 4 bits is unpacked
/// whenever it is read. All sequences are full, and nothing is packed: the longest a step can take.
MicroBatchWork plan_work(const Request& request, const model::ParameterTable& table,
                         const Rates& rates, Passes passes);

/// Tokens that a token sees, on average over a sequence of `length`, in a layer like this.
double visible_tokens(const model::Layer& layer, std::int64_t length);

}  // namespace finetune::plan
