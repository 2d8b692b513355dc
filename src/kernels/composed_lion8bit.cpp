// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_lion8bit.hpp"

#include <ATen/ATen.h>

#include "kernels/composed_adamw8bit.hpp"

namespace finetune::kernels::composed {

void lion8bit_(at::Tensor& weight, const at::Tensor& exp_avg, const at::Tensor& exp_avg_scale,
               const at::Tensor& gradient, const LionNumbers& numbers,
               std::span<const LionRun> runs) {
  const at::Tensor m = decoded(Moment::first, exp_avg, exp_avg_scale);
  const at::Tensor in_no_run = at::ones_like(m, at::kBool);
  for (const LionRun& run : runs) {
    if (run.count == 0) continue;
    LionNumbers by = numbers;
    by.lr *= run.lr_ratio;
    by.weight_decay = run.weight_decay;
    by.index = run.index;
    at::Tensor w = weight.narrow(0, run.first, run.count);
    at::Tensor m_run = m.narrow(0, run.first, run.count);
    lion_(w, m_run, gradient.narrow(0, run.first, run.count), by);
    in_no_run.narrow(0, run.first, run.count).fill_(false);
  }
  m.masked_fill_(in_no_run, 0);
  encode(Moment::first, m, exp_avg, exp_avg_scale);
}

}  // namespace finetune::kernels::composed
