#pragma once
// SPDX-License-Identifier: Apache-2.0
// Exact sums of squares of many rows at once; of one: composed.hpp.

#include <ATen/core/Tensor.h>

namespace finetune::kernels::composed {

/// What add_exact_squares_ does, of each row: bins int64 [M, SquareBins::num_values], values fp32
/// [M, N].
void add_exact_squares_of_rows_(at::Tensor& bins, const at::Tensor& values);

}  // namespace finetune::kernels::composed
