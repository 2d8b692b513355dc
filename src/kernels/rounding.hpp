#pragma once
// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding: what its random bits depend on.

#include <cstdint>

namespace finetune::kernels {

/// What tells the random bits of a run's steps apart, besides the number of the element.
struct RoundingKey {
  std::uint64_t seed;
  std::int64_t step;  ///< counts from 0
};

/// An fp32 number between two neighbouring bf16 numbers becomes the upper one with the probability
/// of its distance from the lower one, so its mean is the number itself. Numbers that bf16 has stay
/// as they are.
///
/// For whoever computes the same bits: element e (numbered over the whole model) takes word
/// e % 64 / 16 of the Philox4x32-10 block with the counter {b's low half, b's high half, low half
/// of step / 64, its high half}, b = 16 * (e / 64) + e % 16, and the key {seed's low half, seed's
/// high half + 6} (RandomUse::rounding); plus 0x9E3779B9 * (step % 64). A weight is rounded by its
/// upper 16 bits, exp_avg by the upper eight of the lower half, exp_avg_sq by the lower eight.
///
/// The sum steps on by the golden ratio (a Weyl sequence): the numbers of 64 following steps lie
/// evenly in their range, so that rounding errors of these steps cancel instead of adding up like a
/// random walk. Each of them alone is uniform.
/// Source: Gupta et al. 2015, "Deep learning with limited numerical precision" (arXiv 1502.02551).
inline constexpr std::int64_t rounding_tile = 64, rounding_lanes = 16, rounding_period = 64;
inline constexpr std::uint32_t rounding_stride = 0x9E3779B9u;

}  // namespace finetune::kernels
