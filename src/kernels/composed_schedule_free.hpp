#pragma once
// SPDX-License-Identifier: Apache-2.0
// kernels::schedule_free, put together from ATen operations.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kernels/rounding.hpp"

namespace finetune::kernels::composed {

struct ScheduleFreeNumbers {
  double lr, beta1, beta2, epsilon, weight_decay;
  double average = 1;  ///< of the new z in the mean of them all
  std::int64_t step;   ///< counts from 1
  double gradient_scale = 1.0;
  std::optional<RoundingKey> rounding = {};  ///< of what is bf16; without: to nearest
  std::int64_t index = 0;                    ///< of the first element, over the whole model
};

/// All [N]; weight (y), z and exp_avg_sq change in place. Computed in fp32; what is bf16 is rounded
/// at the end of the step.
void schedule_free_(at::Tensor& weight, at::Tensor& z, at::Tensor& exp_avg_sq,
                    const at::Tensor& gradient, const ScheduleFreeNumbers& numbers);

}  // namespace finetune::kernels::composed
