#pragma once
// SPDX-License-Identifier: Apache-2.0
// One Lion step over a flat piece of parameters, in one pass over its memory.

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
struct LionStep {
  std::span<Weight> weight;
  std::span<Moment> exp_avg;
  std::span<const float> gradient;
  std::span<bf16> weight_bf16 = {};  ///< receives the new weights, rounded; or empty
  std::span<f16> weight_f16 = {};    ///< or this one
  double lr, beta1, beta2, weight_decay;
  float gradient_scale = 1.0f;               ///< the gradient is multiplied by it first (clipping)
  std::optional<RoundingKey> rounding = {};  ///< stochastic; without: to nearest
  std::int64_t index = 0;                    ///< of the first element, over the whole model
};

/// Moves each weight by lr against the sign of beta1 exp_avg + (1 - beta1) gradient (by nothing if
/// that is 0), after decoupled decay; then exp_avg becomes beta2 exp_avg + (1 - beta2) gradient. In
/// fp32; what is stored as bf16 is rounded at the end of the step, to nearest or as `rounding`
/// says. Copies are rounded to nearest, of weights that are rounded stochastically from what they
/// became. Elementwise: any cut of the parameters into calls gives identical bits.
///
/// Throws: ErrorKind::bug if sizes do not fit.
/// Source: Chen et al. 2023, "Symbolic discovery of optimization algorithms" (arXiv 2302.06675).
template <class Weight, class Moment>
void lion(const LionStep<Weight, Moment>& args, const Place& place = {});

}  // namespace finetune::kernels
