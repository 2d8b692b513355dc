// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_lion.hpp"

#include <ATen/ATen.h>

#include "kernels/detail/composed_rounding.hpp"

namespace finetune::kernels::composed {

void lion_(at::Tensor& weight, at::Tensor& exp_avg, const at::Tensor& gradient,
           const LionNumbers& numbers) {
  // The same tensors where they are fp32 already.
  at::Tensor w = weight.to(at::kFloat), m = exp_avg.to(at::kFloat);
  at::Tensor g = gradient.to(at::kFloat);
  if (numbers.gradient_scale != 1.0) g = g * numbers.gradient_scale;
  const at::Tensor direction = (m * numbers.beta1).add_(g, 1.0 - numbers.beta1).sign_();
  w.mul_(1.0 - numbers.lr * numbers.weight_decay).add_(direction, -numbers.lr);
  m.mul_(numbers.beta2).add_(g, 1.0 - numbers.beta2);
  const bool is_narrow = !weight.is_same(w) || !exp_avg.is_same(m);
  const StoreRounded store(is_narrow ? numbers.rounding : std::nullopt, numbers.index,
                           weight.size(0), weight);
  store(weight, w, RandomBits::weight);
  store(exp_avg, m, RandomBits::exp_avg);
}

}  // namespace finetune::kernels::composed
