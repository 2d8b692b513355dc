#pragma once
// SPDX-License-Identifier: Apache-2.0
// The plan of a run on the ranks it has.

#include <cstdint>

#include "comm/device.hpp"
#include "comm/environment.hpp"
#include "plan/plan.hpp"
#include "preflight/judge.hpp"
#include "train/input/input.hpp"

namespace finetune::train {

/// The plan of a start, and what it was made of.
struct PlannedRun {
  plan::PlanInput request;
  plan::Plan plan;
  std::int64_t node_bytes = 0;  ///< this rank's share of its node's memory
  /// Of the memory that computes, what a plan may take: before communicators, the check and the
  /// run.
  std::int64_t available_bytes = 0;
};

/// What the deck expects of the launch.
preflight::Expected expected_launch(const Input& input);

/// Made once per start: the check, the run and its memory go by it. The deck's choices are settled
/// and `input.arithmetic` is agreed on before. Collective on the environment's world. Throws:
/// AgreedError of ErrorKind::deck or environment, if the ranks do not form a mesh.
PlannedRun plan_run(const comm::Environment& environment, const Input& input,
                    const comm::Device& device);

/// Warns of what the user may not have meant; what does not fit into memory is rejected before
/// weights are read. On GPUs that is what is free once the mesh's communicators are there, which
/// takes memory too: they exist before. Collective on the environment's world. Throws: AgreedError
/// of ErrorKind::environment.
void accept(const comm::Environment& environment, const Input& input, const PlannedRun& planned);

}  // namespace finetune::train
