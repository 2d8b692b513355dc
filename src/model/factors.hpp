#pragma once
// SPDX-License-Identifier: Apache-2.0
// Factors of matrices: the only caller of LAPACK. Each function computes on one thread and on a
// copy, since bits depend on the number of threads and on where in memory a matrix begins. fp32, on
// the CPU.

#include <ATen/core/Tensor.h>

#include <utility>

namespace finetune::model {

/// Q [m, k] and R [k, n] of a matrix [m, n], k the smaller side.
std::pair<at::Tensor, at::Tensor> qr(const at::Tensor& matrix);

struct SingularValues {
  at::Tensor left, values, right;  ///< [m, k], [k], [k, n]; values fall
};

/// All of them: k is the smaller side.
SingularValues singular_values(const at::Tensor& matrix);

/// The largest, about: as many as `guesses` [n, k] has columns, which are to be random. Each
/// iteration multiplies with the matrix and its transpose once more. Source: Halko et al. 2011
/// (arXiv 0909.4061), algorithm 4.4 with the projection of 5.1.
SingularValues largest_singular_values(const at::Tensor& matrix, const at::Tensor& guesses,
                                       int num_iterations);

}  // namespace finetune::model
