#pragma once
// SPDX-License-Identifier: Apache-2.0
// The plan of a run on the ranks it has.

#include "comm/device.hpp"
#include "comm/environment.hpp"
#include "plan/plan.hpp"
#include "train/input.hpp"

namespace finetune::train {

/// Plans the run and warns of what the user may not have meant. A mesh that the ranks cannot form,
/// or a run that does not fit into memory, is refused before weights are read.
/// `input.arithmetic` is agreed on before. Collective on the environment's world. Throws:
/// AgreedError of ErrorKind::deck or environment.
plan::Plan make_plan(const comm::Environment& environment, const Input& input,
                     const comm::Device& device);

}  // namespace finetune::train
