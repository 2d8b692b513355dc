#pragma once
// SPDX-License-Identifier: Apache-2.0
// The step of AdamW with 8-bit moments, put together from ATen operations; on any device.

#include <ATen/core/Tensor.h>

#include <span>

#include "kernels/adamw8bit.hpp"
#include "kernels/composed.hpp"

namespace finetune::kernels::composed {

/// Codes [N] u8 and scales [N / 256, rounded up] fp32; both change in place.
struct Moments8bit {
  at::Tensor exp_avg, exp_avg_sq;
  at::Tensor exp_avg_scale, exp_avg_sq_scale;
};

/// weight [N], in place; gradient [N]. Weight decay is that of the runs, not of `numbers`. Elements
/// in no run as in kernels::adamw8bit.
void adamw8bit_(at::Tensor& weight, const Moments8bit& moments, const at::Tensor& gradient,
                const AdamWNumbers& numbers, std::span<const DecayRun> runs);

/// What codes [N] stand for, fp32 [N]; scales [N / 256, rounded up].
at::Tensor decoded(Moment moment, const at::Tensor& codes, const at::Tensor& scales);
/// Makes codes and scales of `values` fp32 [N], as kernels::quantize_moment does.
void encode(Moment moment, const at::Tensor& values, const at::Tensor& codes,
            const at::Tensor& scales);

/// kernels::moment_tables on the device of `like`, bytes [N]: copied once.
at::Tensor moment_tables_on_device_of(const at::Tensor& like);

}  // namespace finetune::kernels::composed
