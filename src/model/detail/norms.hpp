#pragma once
// SPDX-License-Identifier: Apache-2.0
// Norms of rows, forward and backward, on tensors: RMSNorm by the kernels of `kernels/` where they
// compute, else by compositions of ATen functions.

#include <ATen/ATen.h>

#include <tuple>

#include "model/detail/basic_ops.hpp"
#include "model/path.hpp"
#include "model/weights.hpp"

namespace finetune::model {

/// A norm's results.
struct Normed {
  at::Tensor h;           ///< [N, D], what was normed: x, or x + residual
  at::Tensor y;           ///< [N, D]
  at::Tensor statistics;  ///< fp32: 1 / rms [N]; or the means and 1 / deviation [2, N]
};

/// `residual_ND`: undefined, or what is added before. Without a weight (row -1) by ones.
Normed norm_forward(const Weights& weights, const Norm& norm, const at::Tensor& x_ND,
                    const at::Tensor& residual_ND, Path path);

/// dh [N, D], plus `d_residual_ND` if defined; adds the gradients of weight and bias where they are
/// trained. Of `normed` it reads h and statistics.
at::Tensor norm_backward(Weights& weights, const Norm& norm, const Normed& normed,
                         const at::Tensor& dy_ND, const at::Tensor& d_residual_ND, Path path);

/// RMSNorm by a weight [D]; `offset`: NormKind::weight_offset.
Normed rms_norm_forward(const at::Tensor& x_ND, const at::Tensor& residual_ND,
                        const at::Tensor& weight_D, double eps, Path path, double offset = 0);

/// {dh (plus `d_residual_ND` if defined), dw [D] fp32; undefined if not wanted}.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const Normed& normed, const at::Tensor& dy_ND,
                                                     const at::Tensor& d_residual_ND,
                                                     const at::Tensor& weight_D, Path path,
                                                     double offset = 0, bool wants_dw = true);

}  // namespace finetune::model
