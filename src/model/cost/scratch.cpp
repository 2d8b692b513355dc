// SPDX-License-Identifier: Apache-2.0
#include "model/cost/scratch.hpp"

#include "kernels/attention.hpp"
#include "kernels/delta_rule.hpp"
#include "kernels/product.hpp"
#include "kernels/state_space.hpp"
#include "model/architecture.hpp"

#include <algorithm>

namespace finetune::model {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t step) {
  return (n + step - 1) / step * step;
}

kernels::DeltaShape shape_of(const DeltaHeads& heads) {
  return {.num_key_heads = heads.num_keys,
          .values_per_key = heads.values_per_key,
          .key_size = heads.key_size,
          .value_size = heads.value_size,
          .taps = heads.taps};
}

kernels::StateShape shape_of(const StateHeads& heads) {
  return {.num_groups = heads.num_groups,
          .heads_per_group = heads.heads_per_group,
          .head_size = heads.head_size,
          .state_size = heads.state_size,
          .taps = heads.taps};
}

}  // namespace

std::int64_t product_scratch_bytes() {
  return kernels::product_scratch_bytes;
}

std::int64_t attention_scratch_bytes(std::int64_t length, std::int64_t head_size) {
  const std::int64_t elements =
      round_up(length, kernels::widened_tile) * round_up(head_size, kernels::widened_panel);
  return elements <= kernels::most_widened_elements ? kernels::widened_bytes_per_element * elements
                                                    : 0;
}

/// Layers of both kinds are computed one after the other.
std::int64_t memory_scratch_bytes(const Architecture& a, std::int64_t threads,
                                  std::int64_t length) {
  const std::int64_t of_delta_rule =
      std::min(threads, a.delta.num_keys) * kernels::delta_rule_scratch(shape_of(a.delta), length);
  const std::int64_t of_states = std::min(threads, a.states.num_heads()) *
                                 kernels::state_space_scratch(shape_of(a.states), length);
  return std::max(of_delta_rule, of_states) * std::int64_t{sizeof(float)};
}

std::int64_t delta_memory_bytes(const DeltaHeads& heads) {
  return shape_of(heads).memory_size() * std::int64_t{sizeof(float)};
}

std::int64_t state_memory_bytes(const StateHeads& heads) {
  return shape_of(heads).memory_size() * std::int64_t{sizeof(float)};
}

}  // namespace finetune::model
