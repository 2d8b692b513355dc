#pragma once
// SPDX-License-Identifier: Apache-2.0
// One AdamW step over a flat piece of parameters, in one pass over its memory.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"

namespace finetune::kernels {

/// All spans have the same N elements, except `weight_bf16`, which may be empty.
struct AdamWStep {
  std::span<float> weight;
  std::span<float> exp_avg, exp_avg_sq;
  std::span<const float> gradient;
  std::span<bf16> weight_bf16;  ///< receives the new weights, rounded; or empty
  double lr, beta1, beta2, epsilon, weight_decay;
  std::int64_t step;            ///< counts from 1
  float gradient_scale = 1.0f;  ///< the gradient is multiplied by it first (clipping)
};

/// Updates `weight`, `exp_avg` and `exp_avg_sq` with the arithmetic of torch.optim.AdamW: bias
/// corrections in fp64, the rest in fp32, epsilon outside the square root, decoupled decay.
/// Elementwise: any cut of the parameters into calls gives the same bits.
///
/// Throws: ErrorKind::bug if sizes do not fit or step < 1.
/// Source: Loshchilov and Hutter 2019 (arXiv 1711.05101).
void adamw(const AdamWStep& args);

}  // namespace finetune::kernels
