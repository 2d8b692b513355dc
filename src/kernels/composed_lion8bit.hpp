#pragma once
// SPDX-License-Identifier: Apache-2.0
// The step of Lion with an 8-bit moment, put together from ATen operations; on any device.

#include <ATen/core/Tensor.h>

#include <span>

#include "kernels/composed_lion.hpp"
#include "kernels/lion8bit.hpp"

namespace finetune::kernels::composed {

/// weight, gradient and codes [N], scales [N / 256, rounded up]; weight, codes and scales change in
/// place. Weight decay is that of the runs, not of `numbers`. Elements in no run as in
/// kernels::lion8bit.
void lion8bit_(at::Tensor& weight, const at::Tensor& exp_avg, const at::Tensor& exp_avg_scale,
               const at::Tensor& gradient, const LionNumbers& numbers,
               std::span<const LionRun> runs);

}  // namespace finetune::kernels::composed
