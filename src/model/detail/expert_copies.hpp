#pragma once
// SPDX-License-Identifier: Apache-2.0
// What happens to rows between a layer's tokens and the products of its experts.

#include <ATen/ATen.h>

#include "model/path.hpp"

namespace finetune::model {

// Weights are fp32 and are rounded to the dtype of what they multiply.

/// Rows `tokens_M` of x [N, D], each times its weight. Undefined: all rows; no weights.
at::Tensor copies_of(const at::Tensor& x_ND, const at::Tensor& tokens_M,
                     const at::Tensor& weights_M, Path path);

/// Adds the copies of each token: copies [N k, D], where `places_Nk` (int64) says which are whose;
/// each times its weight, unless `weights_Nk` is undefined.
at::Tensor add_copies(at::Tensor copies, const at::Tensor& places_Nk, const at::Tensor& weights_Nk,
                      Path path);

/// The dot products of the rows of a and b, fp32 [M]; then a's are multiplied with `weights_M`.
at::Tensor dot_and_scale_rows(at::Tensor& a_MF, const at::Tensor& b_MF, const at::Tensor& weights_M,
                              Path path);

}  // namespace finetune::model
