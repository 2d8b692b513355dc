#pragma once
// SPDX-License-Identifier: Apache-2.0
// One step of schedule-free AdamW over a flat piece of parameters, in one pass over its memory.

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
struct ScheduleFreeStep {
  std::span<Weight> weight;  ///< y, where gradients are taken
  std::span<Moment> z;       ///< where plain AdamW without momentum would be
  std::span<Moment> exp_avg_sq;
  std::span<const float> gradient;
  std::span<bf16> weight_bf16 = {};  ///< receives the new y, rounded; or empty
  std::span<f16> weight_f16 = {};    ///< or this one
  double lr, beta1, beta2, epsilon, weight_decay;
  double average = 1;           ///< c: of the new z in the mean x of them all; 1 in the first step
  std::int64_t step;            ///< counts from 1
  float gradient_scale = 1.0f;  ///< the gradient is multiplied by it first (clipping)
  std::optional<RoundingKey> rounding = {};  ///< stochastic; without: to nearest
  std::int64_t index = 0;                    ///< of the first element, over the whole model
};

/// v = beta2 v + (1 - beta2) g^2; d = g / (sqrt(v / (1 - beta2^step)) + epsilon) + weight_decay y;
/// y = y + c (z - y) + lr (beta1 (1 - c) - 1) d; z = z - lr d. So the mean x = y + (1 - 1 / beta1)
/// (z - y) of all z, weighted, is the one to evaluate, and no x is kept. In fp32; what is stored as
/// bf16 is rounded at the end of the step, to nearest or as `rounding` says. Elementwise: any cut
/// of the parameters into calls gives identical bits.
///
/// Throws: ErrorKind::bug if sizes do not fit or step < 1.
/// Source: Defazio et al. 2024, "The road less scheduled" (arXiv 2405.15682), as their package
/// `schedulefree` has it: decay at y, and x not kept.
template <class Weight, class Moment>
void schedule_free(const ScheduleFreeStep<Weight, Moment>& args, const Place& place = {});

}  // namespace finetune::kernels
