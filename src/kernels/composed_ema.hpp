#pragma once
// SPDX-License-Identifier: Apache-2.0
// kernels::move_mean, put together from ATen operations.

#include <ATen/core/Tensor.h>

namespace finetune::kernels::composed {

/// mean fp32 [N], in place; weight [N], fp32 or bf16.
void move_mean_(at::Tensor& mean, const at::Tensor& weight, double rate);

}  // namespace finetune::kernels::composed
