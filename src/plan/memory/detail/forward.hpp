#pragma once
// SPDX-License-Identifier: Apache-2.0
// Bytes of a pass that nothing is learnt from.

#include <cstdint>

#include "model/cost/cost.hpp"
#include "plan/plan.hpp"

namespace finetune::plan {

/// What the blocks' ops hold at their worst moment of `tokens` in one pass, and the stream between
/// them. `table` is a rank's own.
model::BytesHeld forward_bytes(const PlanInput& request, const model::ParameterTable& table,
                               std::int64_t tokens);

}  // namespace finetune::plan
