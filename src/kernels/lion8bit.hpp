#pragma once
// SPDX-License-Identifier: Apache-2.0
// One Lion step with a moment of eight bits.

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/adamw8bit.hpp"
#include "kernels/element.hpp"
#include "kernels/rounding.hpp"

namespace finetune::kernels {

/// Neighbouring elements with the same weight decay and learning rate.
struct LionRun {
  std::int64_t first, count;
  double weight_decay;
  double lr_ratio = 1;     ///< to the step's
  std::int64_t index = 0;  ///< of its first element, over the whole model
};

/// A flat piece of N parameters, a whole number of blocks or the end of what there is: the piece
/// begins where a block begins, and its last block may be shorter. Weight: float or bf16.
template <class Weight>
struct Lion8bitStep {
  std::span<Weight> weight;          ///< [N]
  std::span<std::uint8_t> exp_avg;   ///< [N] codes (Moment::first)
  std::span<float> exp_avg_scale;    ///< [N / 256, rounded up]
  std::span<const float> gradient;   ///< [N]
  std::span<bf16> weight_bf16 = {};  ///< receives the new weights, rounded; or empty
  std::span<f16> weight_f16 = {};    ///< or this one
  std::span<const LionRun> runs;     ///< in rising order, none over another
  double lr, beta1, beta2;
  float gradient_scale = 1.0f;               ///< the gradient is multiplied by it first (clipping)
  std::optional<RoundingKey> rounding = {};  ///< of bf16 weights, stochastic; without: to nearest
};

/// Updates the elements of all runs as kernels::lion does, in fp32. An element in no run (padding)
/// keeps its weight and its copy, its gradient is not looked at, and its moment becomes 0.
///
/// Blocks are on their own: any cut between blocks into calls gives identical bits. Of the host
/// alone. Throws: ErrorKind::bug if sizes do not fit or runs overlap.
/// Sources: Chen et al. 2023 (arXiv 2302.06675); Dettmers et al. 2021 (arXiv 2110.02861).
template <class Weight>
void lion8bit(const Lion8bitStep<Weight>& args);

}  // namespace finetune::kernels
