#pragma once
// SPDX-License-Identifier: Apache-2.0
// Products whose bits do not depend on the number of threads that share them.

#include <ATen/core/Tensor.h>

namespace finetune::kernels {

/// a b, of matrices [m, k] and [k, n]. On the CPU the result is cut into tiles whose bounds follow
/// from its shape alone; each is computed by one thread.
at::Tensor tiled_mm(const at::Tensor& a, const at::Tensor& b);

/// beta c + alpha a b, with c [m, n]; as above.
at::Tensor tiled_addmm(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, double beta,
                       double alpha);

}  // namespace finetune::kernels
