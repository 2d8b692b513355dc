// SPDX-License-Identifier: Apache-2.0
#include "plan/optimizer.hpp"

#include <algorithm>
#include <numeric>

namespace finetune::plan {

std::int64_t OptimizerFootprint::block() const {
  std::int64_t block = 1;
  for (const OptimizerState& state : states)
    block = std::lcm(block, state.block);
  return block;
}

bool OptimizerFootprint::keeps_ema() const {
  return std::ranges::any_of(states,
                             [](const OptimizerState& state) { return state.kind == ema_state; });
}

std::int64_t OptimizerFootprint::state_bytes(std::int64_t count, const Numbers& numbers) const {
  std::int64_t bytes = 0;
  for (const OptimizerState& state : states)
    bytes += state.num_values(count) * core::size_bytes(state.dtype_in(numbers));
  return bytes;
}

OptimizerFootprint with_ema(OptimizerFootprint footprint) {
  footprint.states.push_back({.kind = ema_state, .dtype = core::DType::f32});
  footprint.passes.weights += 1;          // read again
  footprint.passes.composed_bytes += 20;  // the difference, and what becomes of it
  return footprint;
}

}  // namespace finetune::plan
