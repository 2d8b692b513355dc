// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_schedule_free.hpp"

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/detail/composed_rounding.hpp"

namespace finetune::kernels::composed {

void schedule_free_(at::Tensor& weight, at::Tensor& z, at::Tensor& exp_avg_sq,
                    const at::Tensor& gradient, const ScheduleFreeNumbers& numbers) {
  // The same tensors where they are fp32 already.
  at::Tensor y = weight.to(at::kFloat), to = z.to(at::kFloat), v = exp_avg_sq.to(at::kFloat);
  at::Tensor g = gradient.to(at::kFloat);
  if (numbers.gradient_scale != 1.0) g = g * numbers.gradient_scale;
  v.mul_(numbers.beta2).addcmul_(g, g, 1.0 - numbers.beta2);
  const double correction2 = 1.0 - std::pow(numbers.beta2, static_cast<double>(numbers.step));
  at::Tensor direction = g.div(v.sqrt().div_(std::sqrt(correction2)).add_(numbers.epsilon));
  direction.add_(y, numbers.weight_decay);
  y.add_(to.sub(y), numbers.average)
      .sub_(direction, numbers.lr * (1.0 - numbers.beta1 * (1.0 - numbers.average)));
  to.sub_(direction, numbers.lr);
  const bool is_narrow = !weight.is_same(y) || !z.is_same(to) || !exp_avg_sq.is_same(v);
  const StoreRounded store(is_narrow ? numbers.rounding : std::nullopt, numbers.index,
                           weight.size(0), weight);
  store(weight, y, RandomBits::weight);
  store(z, to, RandomBits::exp_avg);
  store(exp_avg_sq, v, RandomBits::exp_avg_sq);
}

}  // namespace finetune::kernels::composed
