#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tokens as experts take them: a copy for each expert that a token chose, in the order of experts,
// and back. On the host alone.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"

namespace finetune::kernels {

// T is float or bf16. Weights are fp32 and rounded to T before they multiply; sums are fp32, in the
// order of a token's choices, rounded once. A call with other sizes is an ErrorKind::bug.

/// out[i] = x[rows[i]] * weights[i].
///
/// Shapes: x [N, D] with D = `dim`, rows [M] (empty: 0 .. M-1), weights [M] (empty: 1), out [M, D].
template <class T>
void copy_rows(std::span<const T> x, std::int64_t dim, std::span<const std::int64_t> rows,
               std::span<const float> weights, std::span<T> out);

/// y[n] = sum over j < k of copies[places[n, j]] * weights[n, j].
///
/// Shapes: copies [N k, D], places [N, k], weights [N, k] (empty: 1), y [N, D] with D = `dim`.
template <class T>
void add_copies(std::span<const T> copies, std::int64_t dim, std::span<const std::int64_t> places,
                std::span<const float> weights, std::span<T> y);

/// dots[i] = a[i] . b[i], and then a[i] *= weights[i].
///
/// Shapes: a, b [M, F], weights, dots [M].
template <class T>
void dot_and_scale_rows(std::span<T> a, std::span<const T> b, std::span<const float> weights,
                        std::span<float> dots);

}  // namespace finetune::kernels
