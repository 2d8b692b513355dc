#pragma once
// SPDX-License-Identifier: Apache-2.0
// One AdamW step with moments of eight bits.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"
#include "kernels/rounding.hpp"

namespace finetune::kernels {

/// Consecutive elements that share a scale.
inline constexpr std::int64_t moment_block = 256;

/// exp_avg has levels of both signs, exp_avg_sq twice as many positive ones.
enum class Moment { first, second };

/// The number that each code stands for, as part of its block's scale. Code 0 is 0: memory filled
/// with zeros is the state before the first step.
///
/// The levels are those of dynamic quantisation, but the lowest is -1, so that a block whose
/// largest number is negative keeps it, too.
/// Source: Dettmers et al. 2021, "8-bit optimizers via block-wise quantization" (arXiv 2110.02861).
std::span<const float, 256> moment_levels(Moment moment);

/// What a step reads of the levels, on the host: a GPU needs a copy, which never changes.
std::span<const std::byte> moment_tables();

/// scales[b] = the largest magnitude in block b of 256 (the last may be shorter), codes those of
/// the nearest levels; but no positive exp_avg_sq becomes 0, as the next step divides by its root.
/// A block whose largest magnitude is below 2^-126 becomes zero. What `dequantize_moment` makes
/// gives the same codes and scales again.
/// Throws: ErrorKind::bug if sizes do not fit.
void quantize_moment(Moment moment, std::span<const float> values, std::span<std::uint8_t> codes,
                     std::span<float> scales);

/// values[i] = level of codes[i] * scales[i / 256].
/// Throws: ErrorKind::bug if sizes do not fit.
void dequantize_moment(Moment moment, std::span<const std::uint8_t> codes,
                       std::span<const float> scales, std::span<float> values);

/// Neighbouring elements with the same weight decay.
struct DecayRun {
  std::int64_t first, count;
  double weight_decay;
  std::int64_t index = 0;  ///< of its first element, over the whole model
};

/// A flat piece of N parameters, a whole number of blocks or the end of what there is: the piece
/// begins where a block begins, and its last block may be shorter. Weight: float or bf16.
template <class Weight>
struct AdamW8bitStep {
  std::span<Weight> weight;                          ///< [N]
  std::span<std::uint8_t> exp_avg, exp_avg_sq;       ///< [N] codes
  std::span<float> exp_avg_scale, exp_avg_sq_scale;  ///< [N / 256, rounded up]
  std::span<const float> gradient;                   ///< [N]
  std::span<bf16> weight_bf16 = {};  ///< receives the new weights, rounded; or empty
  std::span<f16> weight_f16 = {};    ///< or this one
  std::span<const DecayRun> runs;    ///< in rising order, none over another; on a GPU: there
  double lr, beta1, beta2, epsilon;
  std::int64_t step;                         ///< counts from 1
  float gradient_scale = 1.0f;               ///< the gradient is multiplied by it first (clipping)
  std::optional<RoundingKey> rounding = {};  ///< of bf16 weights, stochastic; without: to nearest
  std::span<const std::byte> tables = {};    ///< a GPU's copy of moment_tables()
};

/// Updates the elements of all runs as kernels::adamw does, in fp32, with the moments as they are
/// before they are rounded to codes. An element in no run (padding) keeps its weight and its copy,
/// its gradient is not looked at, and its moments become 0.
///
/// Blocks are on their own: any cut between blocks into calls gives identical bits. On a GPU one
/// launch, which does not look whether runs overlap.
/// Throws: ErrorKind::bug if sizes do not fit, runs overlap or step < 1.
template <class Weight>
void adamw8bit(const AdamW8bitStep<Weight>& args, const Place& place = {});

}  // namespace finetune::kernels
