#pragma once
// SPDX-License-Identifier: Apache-2.0
// The state space (kernels/state_space.hpp) put together from ATen operations that autograd knows:
// products of matrices for some tokens at a time, one chunk after the other.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "kernels/composed_memory.hpp"
#include "kernels/state_space.hpp"

namespace finetune::kernels::composed {

/// fp32, where the inputs are; fp64 if these are.
struct StateWeights {
  at::Tensor taps;       ///< [channels, taps]
  at::Tensor taps_bias;  ///< [channels]
  at::Tensor decay;      ///< [H]
  at::Tensor step_bias;  ///< [H]
  at::Tensor skip;       ///< [H]
  at::Tensor norm;       ///< [outputs]
};

/// x_NI [N, inputs] of any float dtype -> [N, outputs] of the same. Stretches are in order; rows
/// that are of none become 0.
at::Tensor state_space(const at::Tensor& x_NI, const StateWeights& weights, const StateShape& shape,
                       const std::vector<MemoryStretch>& stretches);

}  // namespace finetune::kernels::composed
