// SPDX-License-Identifier: Apache-2.0
#include "model/cost/scratch.hpp"

#include "kernels/attention.hpp"
#include "kernels/delta_rule.hpp"
#include "kernels/product.hpp"
#include "model/architecture.hpp"

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

std::int64_t delta_rule_scratch_bytes(std::int64_t length, const DeltaHeads& heads) {
  return kernels::delta_rule_scratch(shape_of(heads), length) * std::int64_t{sizeof(float)};
}

std::int64_t delta_memory_bytes(const DeltaHeads& heads) {
  return shape_of(heads).memory_size() * std::int64_t{sizeof(float)};
}

}  // namespace finetune::model
