// SPDX-License-Identifier: Apache-2.0
#include "plan/optimizer.hpp"

#include <algorithm>
#include <numeric>

#include "core/tensor_slice.hpp"

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

std::optional<std::vector<std::int64_t>> OptimizerState::factor_shape(
    const model::Parameter& parameter) const {
  std::vector<std::int64_t> shape = parameter.shape;
  const bool is_matrix = shape.size() >= 2;
  if (is_of_elements() || is_matrix == (of == Of::vectors)) return std::nullopt;
  if (of == Of::rows) shape.pop_back();
  if (of == Of::columns) shape.erase(shape.end() - 2);
  return shape;
}

std::int64_t OptimizerState::num_values(const model::ParameterTable& table,
                                        const UnitLayout& unit) const {
  std::int64_t count = num_values(unit.shard_size);
  for (const int row : unit.rows) {
    const auto shape = factor_shape(table.row(row));
    if (shape) count += core::num_elements(*shape);
  }
  return count;
}

bool OptimizerFootprint::has_factors() const {
  return !std::ranges::all_of(states, &OptimizerState::is_of_elements);
}

std::int64_t OptimizerFootprint::factor_bytes(const model::ParameterTable& table,
                                              const UnitLayout& unit,
                                              const Numbers& numbers) const {
  std::int64_t bytes = 0;
  for (const OptimizerState& state : states)
    if (!state.is_of_elements())
      bytes += state.num_values(table, unit) * core::size_bytes(state.dtype_in(numbers));
  return bytes;
}

OptimizerFootprint with_ema(OptimizerFootprint footprint) {
  footprint.states.push_back({.kind = ema_state, .dtype = core::DType::f32});
  footprint.passes.weights += 1;          // read again
  footprint.passes.composed_bytes += 20;  // the difference, and what becomes of it
  return footprint;
}

}  // namespace finetune::plan
