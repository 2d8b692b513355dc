#pragma once
// SPDX-License-Identifier: Apache-2.0
// An exponential mean of weights moves on, in one pass over memory.

#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// mean += rate (weight - mean), in fp32, each operation rounded as written. With rate = 1 the mean
/// becomes the weight. Weight: float or bf16. Elementwise: any cut into calls gives identical bits.
/// Throws: ErrorKind::bug if sizes differ.
template <class Weight>
void move_mean(std::span<float> mean, std::span<const Weight> weight, float rate,
               const Place& place = {});

}  // namespace finetune::kernels
