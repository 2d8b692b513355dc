// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_ema.hpp"

#include <ATen/ATen.h>

namespace finetune::kernels::composed {

void move_mean_(at::Tensor& mean, const at::Tensor& weight, double rate) {
  if (rate == 1.0) {
    mean.copy_(weight);
    return;
  }
  // One operation each: none is fused with another.
  mean.add_(weight.to(at::kFloat).sub(mean).mul_(static_cast<float>(rate)));
}

}  // namespace finetune::kernels::composed
