#pragma once
// SPDX-License-Identifier: Apache-2.0
// Noise on activations, put together from ATen operations; on any device.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/noise.hpp"

namespace finetune::kernels::composed {

/// To the bit what the kernel makes. x [N, D] of any float dtype, tokens [N] int64, scales [N]
/// fp32, all where x is. Temporaries stay below 64 MiB.
void add_noise_(at::Tensor& x, const at::Tensor& tokens, const at::Tensor& scales,
                std::uint64_t seed);

}  // namespace finetune::kernels::composed
