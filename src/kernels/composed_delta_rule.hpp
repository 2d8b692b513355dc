#pragma once
// SPDX-License-Identifier: Apache-2.0
// The gated delta rule (kernels/delta_rule.hpp) put together from ATen operations that autograd
// knows: products of matrices for some tokens at a time, one chunk after the other.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "kernels/composed_memory.hpp"
#include "kernels/delta_rule.hpp"

namespace finetune::kernels::composed {

/// fp32, where the inputs are.
struct DeltaWeights {
  at::Tensor taps;        ///< [channels, taps]
  at::Tensor decay;       ///< [Hv]
  at::Tensor decay_bias;  ///< [Hv]
  at::Tensor norm;        ///< [V]
};

/// x_NI [N, inputs] of any float dtype -> [N, outputs] of the same. Stretches are in order; rows
/// that are of none become 0.
at::Tensor delta_rule(const at::Tensor& x_NI, const DeltaWeights& weights, const DeltaShape& shape,
                      const std::vector<MemoryStretch>& stretches);

}  // namespace finetune::kernels::composed
