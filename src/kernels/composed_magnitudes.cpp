// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_magnitudes.hpp"

#include <ATen/ATen.h>

namespace finetune::kernels::composed {

at::Tensor adapted_row_squares(const at::Tensor& weight, const at::Tensor& mixed,
                               const at::Tensor& b, const at::Tensor& low, double scale) {
  const at::Tensor own =
      at::linalg_vector_norm(weight, 2, 1, /*keepdim=*/false, at::kFloat).square();
  const at::Tensor b_f = b.to(at::kFloat);
  const at::Tensor between = mixed.to(at::kFloat).mul(b_f).sum(1);
  return own + 2 * scale * between + scale * scale * low.mul(b_f).sum(1);
}

at::Tensor row_factors(const at::Tensor& norms, const at::Tensor& magnitude) {
  const at::Tensor factors = at::where(norms > 0, magnitude.to(at::kFloat) / norms, 1);
  return factors.to(magnitude.scalar_type());
}

at::Tensor magnitude_gradient(const at::Tensor& norms, const at::Tensor& d_factors) {
  return at::where(norms > 0, d_factors / norms, 0);
}

}  // namespace finetune::kernels::composed
