// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_lion.hpp"

#include <ATen/ATen.h>

#include "kernels/composed_rounding.hpp"

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
  at::Tensor random;
  if (numbers.rounding && is_narrow)
    random = rounding_bits(*numbers.rounding, numbers.index, weight.size(0), weight);
  const auto round_back = [&](at::Tensor& stored, const at::Tensor& wide, const auto& bits) {
    if (!stored.is_same(wide)) stored.copy_(random.defined() ? rounded_by(wide, bits()) : wide);
  };
  round_back(weight, w, [&] { return random.bitwise_right_shift(16); });
  round_back(exp_avg, m, [&] { return random.bitwise_and(0xFF00).bitwise_or_(0x80); });
}

}  // namespace finetune::kernels::composed
