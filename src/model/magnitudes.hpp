#pragma once
// SPDX-License-Identifier: Apache-2.0
// Norms of rows with a low-rank part on top, and the factors that give rows the norms that were
// learned for them (DoRA): by kernels, or put together where there are none.

#include <ATen/ATen.h>

#include "model/path.hpp"

namespace finetune::model {

/// Rows of W + scale B A.
struct AdaptedRows {
  at::Tensor w_FD;
  at::Tensor mixed_FR;  ///< W A^T
  at::Tensor b_FR;
  at::Tensor low_FR;  ///< B A A^T, fp32
  double scale = 1;
};

/// `out`: fp32 [F], neighbours; their squared norms.
void adapted_row_squares_out(at::Tensor out, const AdaptedRows& rows, Path path);

/// `out`: [F] of the magnitudes' dtype; magnitude / norm, and 1 where a row is zero: it has no
/// direction, and 0 / 0 would make every output of the model NaN. `norms` fp32 [F]. Where
/// `d_factors`, fp32 [F], is defined, also writes the gradient of magnitudes, fp32 [F].
void row_factors_out(at::Tensor out, const at::Tensor& norms, const at::Tensor& magnitude,
                     Path path, const at::Tensor& d_factors = {}, at::Tensor d_magnitude = {});

}  // namespace finetune::model
