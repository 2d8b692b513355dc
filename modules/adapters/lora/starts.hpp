#pragma once
// SPDX-License-Identifier: Apache-2.0
// Low-rank matrices that begin with factors of the matrix that they adapt.

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>

#include "adapters/lora/start_kind.hpp"

namespace finetune::adapters::lora {

/// A [r, in] and B [out, r] of `weight` [out, in] for a product that is scaled by `scale`; r is at
/// most the smaller side. fp32, on the CPU; the same bits on any number of threads and ranks
/// (model/factors.hpp). The randomised method draws from `seed`. Throws: ErrorKind::numbers if the
/// weight has numbers that are not finite.
std::pair<at::Tensor, at::Tensor> factors_of(const at::Tensor& weight, std::int64_t rank,
                                             double scale, const StartKind& kind,
                                             std::uint64_t seed);

}  // namespace finetune::adapters::lora
