// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_muon.hpp"

#include <ATen/ATen.h>

#include "kernels/detail/composed_rounding.hpp"
#include "kernels/detail/tiled_product.hpp"

namespace finetune::kernels::composed {
namespace {

/// Stores what was computed in fp32 where `stored` is narrower.
void store(at::Tensor& stored, const at::Tensor& wide, RandomBits bits,
           const MuonNumbers& numbers) {
  if (stored.is_same(wide)) return;
  StoreRounded(numbers.rounding, numbers.index, stored.size(0), stored)(stored, wide, bits);
}

}  // namespace

at::Tensor muon_direction_(at::Tensor& exp_avg, const at::Tensor& gradient,
                           const MuonNumbers& numbers) {
  // The same tensor where it is fp32 already.
  at::Tensor m = exp_avg.to(at::kFloat);
  // Products and sums one by one: a fused one would round otherwise at the end of a piece.
  const at::Tensor g = gradient.mul(numbers.gradient_scale).mul_(1.0 - numbers.momentum);
  m.mul_(numbers.momentum).add_(g);
  at::Tensor direction = m.mul(numbers.momentum).add_(g);
  store(exp_avg, m, RandomBits::exp_avg, numbers);
  return direction;
}

at::Tensor newton_schulz(const at::Tensor& matrix_AB) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  constexpr int num_steps = 5;
  constexpr double smallest_norm = 1e-7;
  const bool is_high = matrix_AB.size(0) > matrix_AB.size(1);
  at::Tensor x = is_high ? matrix_AB.t().contiguous() : matrix_AB;
  // Of each row, then of all: the sum of a whole matrix is cut by threads, that of a row is not.
  const at::Tensor norm = at::linalg_vector_norm(at::linalg_vector_norm(x, 2, 1));
  x = x.div(norm.clamp_min(smallest_norm));
  for (int i = 0; i < num_steps; ++i) {
    const at::Tensor gram = tiled_mm(x, x.t());
    const at::Tensor polynomial = tiled_addmm(gram, gram, gram, b, c);
    x = tiled_addmm(x, polynomial, x, a, 1);
  }
  return is_high ? x.t() : x;
}

void muon_step_(at::Tensor& weight, const at::Tensor& orthogonal, const MuonNumbers& numbers) {
  at::Tensor w = weight.to(at::kFloat);
  w.mul_(1.0 - numbers.lr * numbers.weight_decay).sub_(orthogonal.mul(numbers.rate));
  store(weight, w, RandomBits::weight, numbers);
}

}  // namespace finetune::kernels::composed
