#pragma once
// SPDX-License-Identifier: Apache-2.0
// kernels::lion, put together from ATen operations.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kernels/rounding.hpp"

namespace finetune::kernels::composed {

struct LionNumbers {
  double lr, beta1, beta2, weight_decay;
  double gradient_scale = 1.0;
  std::optional<RoundingKey> rounding = {};  ///< of what is bf16; without: to nearest
  std::int64_t index = 0;                    ///< of the first element, over the whole model
};

/// All [N]; weight and moment change in place. Computed in fp32; what is bf16 is rounded at the end
/// of the step.
void lion_(at::Tensor& weight, at::Tensor& exp_avg, const at::Tensor& gradient,
           const LionNumbers& numbers);

}  // namespace finetune::kernels::composed
