#pragma once
// SPDX-License-Identifier: Apache-2.0
// How much gradients of micro-batches differ: the simple noise scale.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"

namespace finetune::train {

/// A micro-batch's part of a step's gradient.
struct PassGradient {
  double squares = 0;  ///< squared norm of the term that it adds
  double weight = 0;   ///< its trained tokens (or what else the objective counts)
};

/// Of one step. Both are unbiased, and so noisy that only means of them say something: the second
/// may be negative.
struct NoiseEstimate {
  double trace = 0;    ///< S: of the covariance of a token's gradient
  double squares = 0;  ///< |G|^2 of the true gradient
  double weight = 0;   ///< tokens of the step
};

/// From the squared norms of the gradients of micro-batches and of the whole step: with t_m of T
/// tokens, a micro-batch's mean gradient g_m T / t_m has the expected square |G|^2 + S / t_m, and
/// the step's |G|^2 + S / T. Weighted by t_m / T, the M micro-batches have the mean square
/// |G|^2 + S M / T; so S = (mean - |g|^2) T / (M - 1) and |G|^2 = (M |g|^2 - mean) / (M - 1).
///
/// Micro-batches are what they are on any number of ranks, and added in their order: so is this.
/// `gradients` of all micro-batches in their order; `squares` of the step's gradient. None of fewer
/// than two micro-batches with tokens, or where something is not finite.
/// Source: McCandlish et al. 2018, "An empirical model of large-batch training" (arXiv 1812.06162),
/// appendix A.1, whose small batches are all of one size.
std::optional<NoiseEstimate> estimate_noise(std::span<const PassGradient> gradients,
                                            double squares);

/// Those of all ranks, of which this one has `own`: the i-th of rank r is micro-batch
/// i * ranks + r. Collective on `ranks`, whose numbers are the same.
std::vector<PassGradient> all_passes(const comm::Communicator& ranks,
                                     std::span<const PassGradient> own);

}  // namespace finetune::train
