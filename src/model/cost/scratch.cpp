// SPDX-License-Identifier: Apache-2.0
#include "model/cost/scratch.hpp"

#include "kernels/attention.hpp"
#include "kernels/product.hpp"

namespace finetune::model {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t step) {
  return (n + step - 1) / step * step;
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

}  // namespace finetune::model
