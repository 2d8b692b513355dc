#pragma once
// SPDX-License-Identifier: Apache-2.0
// Exact sums of squares of what lies on a device.

#include <ATen/ATen.h>

namespace finetune::optim {

/// Adds the squares of `values` (fp32 [N]) to `bins`, int64 [kernels::SquareBins::num_values] on
/// the same device: by the kernel where it computes, else by its composition, to the same sum.
void add_exact_squares(const at::Tensor& values, const at::Tensor& bins);

}  // namespace finetune::optim
