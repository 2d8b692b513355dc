#pragma once
// SPDX-License-Identifier: Apache-2.0
// One AdamW step over a flat piece of parameters, in one pass over its memory.

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"
#include "kernels/rounding.hpp"

namespace finetune::kernels {

/// All spans have the same N elements, except the copies, which may be empty. Weight, Moment: float
/// or bf16.
template <class Weight, class Moment = Weight>
struct AdamWStep {
  std::span<Weight> weight;
  std::span<Moment> exp_avg, exp_avg_sq;
  std::span<const float> gradient;
  std::span<bf16> weight_bf16;     ///< receives the new weights, rounded; or empty
  std::span<f16> weight_f16 = {};  ///< or this one
  double lr, beta1, beta2, epsilon, weight_decay;
  std::int64_t step;                         ///< counts from 1
  float gradient_scale = 1.0f;               ///< the gradient is multiplied by it first (clipping)
  std::optional<RoundingKey> rounding = {};  ///< stochastic; without: to nearest
  std::int64_t index = 0;                    ///< of the first element, over the whole model
};

/// Updates `weight`, `exp_avg` and `exp_avg_sq` with the arithmetic of torch.optim.AdamW: bias
/// corrections in fp64, the rest in fp32, epsilon outside the square root, decoupled decay. What
/// is stored as bf16 is rounded at the end of the step, to nearest or as `rounding` says; the
/// weight's update uses the moments before that. Copies are rounded to nearest, of weights that are
/// rounded stochastically from what they became. Elementwise: any cut of the parameters into calls
/// gives identical bits.
///
/// Throws: ErrorKind::bug if sizes do not fit or step < 1.
/// Source: Loshchilov and Hutter 2019 (arXiv 1711.05101).
template <class Weight, class Moment>
void adamw(const AdamWStep<Weight, Moment>& args, const Place& place = {});

}  // namespace finetune::kernels
