#pragma once
// SPDX-License-Identifier: Apache-2.0
// Matrices that ranks quantise together: each has a run of neighbouring elements, which need not
// begin or end with a row, and scales are those of the whole matrix.

#include <ATen/ATen.h>

#include <cstdint>

#include "model/fp8_products.hpp"

namespace finetune::model {

/// Elements [first, first + n) of a matrix [F, D], row by row.
struct MatrixRun {
  at::Tensor elements;  ///< [n]
  std::int64_t first = 0;
  std::int64_t columns = 1;  ///< D
};

/// Raises the largest magnitudes of the tiles that the run has elements of. `largest`: fp32 [F /
/// rows of a tile, D / columns of a tile]; NaN stays.
void raise_largest(const MatrixRun& run, const Tile& tile, const at::Tensor& largest);

/// Writes to `values`, e4m3 [n], what `quantise_matrix` makes of these elements of the whole
/// matrix. `scales`: fp8_scales of its largest magnitudes.
void quantise_run(const MatrixRun& run, const Tile& tile, const at::Tensor& scales,
                  at::Tensor values);

}  // namespace finetune::model
