#pragma once
// SPDX-License-Identifier: Apache-2.0
// Norms of the rows of a matrix with a low-rank part on top of it, and the factors that give each
// row the norm that was learned for it (DoRA).

#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// Rows of W + scale B A, W [F, D], B [F, R], A [R, D]; without a matrix of W's size. T: float or
/// bf16.
template <class T>
struct AdaptedRows {
  std::span<const T> weight;   ///< W [F, D]
  std::span<const T> mixed;    ///< W A^T [F, R]
  std::span<const T> b;        ///< B [F, R]
  std::span<const float> low;  ///< B (A A^T) [F, R]
  float scale;
  std::span<float> squares;  ///< [F], of the rows' norms; may be slightly below 0
};

/// |w + s b A|^2 = |w|^2 + 2 s (w A^T) b + s^2 b (A A^T) b for each row, in fp32. Each element is
/// read once. Throws: ErrorKind::bug if sizes do not fit.
template <class T>
void adapted_row_squares(const AdaptedRows<T>& args, const Place& place = {});

/// Of F rows; T: float or bf16.
template <class T>
struct RowFactors {
  std::span<const float> norms;           ///< [F]
  std::span<const T> magnitude;           ///< [F]
  std::span<T> factors;                   ///< [F]
  std::span<const float> d_factors = {};  ///< [F], gradients of the factors, or empty
  std::span<float> d_magnitude = {};      ///< [F], what becomes of them, or empty as well
};

/// factors = magnitude / norm, d_magnitude = d_factors / norm; 1 and 0 where the norm is 0: such a
/// row has no direction, and 0 / 0 would make every output of a model NaN.
/// Throws: ErrorKind::bug if sizes do not fit.
template <class T>
void row_factors(const RowFactors<T>& args, const Place& place = {});

}  // namespace finetune::kernels
