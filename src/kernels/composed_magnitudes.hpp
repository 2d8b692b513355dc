#pragma once
// SPDX-License-Identifier: Apache-2.0
// Norms of adapted rows and their factors, put together from ATen operations; on any device.

#include <ATen/core/Tensor.h>

namespace finetune::kernels::composed {

/// weight [F, D], mixed, b and low [F, R] as in kernels::AdaptedRows -> squares [F] fp32.
at::Tensor adapted_row_squares(const at::Tensor& weight, const at::Tensor& mixed,
                               const at::Tensor& b, const at::Tensor& low, double scale);

/// norms [F] fp32, magnitude [F] -> factors [F] of the magnitude's dtype.
at::Tensor row_factors(const at::Tensor& norms, const at::Tensor& magnitude);

/// norms and d_factors [F] fp32 -> d_magnitude [F] fp32.
at::Tensor magnitude_gradient(const at::Tensor& norms, const at::Tensor& d_factors);

}  // namespace finetune::kernels::composed
