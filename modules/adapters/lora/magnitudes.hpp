#pragma once
// SPDX-License-Identifier: Apache-2.0
// The magnitudes of low-rank parts (DoRA): each row of a sum has the norm that was learned for it.

#include <ATen/ATen.h>

#include <vector>

#include "model/projection.hpp"

namespace finetune::adapters::lora {

bool has_magnitudes(const std::vector<model::AdaptedPart>& parts);

/// Norms of the rows of W + scale B A, of all parts, fp32 [F]; whoever has no part has some number.
/// w_FD is this rank's; collective on the ranks that share the inputs.
at::Tensor row_norms(const model::Projection& projection,
                     const std::vector<model::AdaptedPart>& parts, const at::Tensor& w_FD);

/// What each output is multiplied with, of the computation's dtype [F]: magnitude / norm; 1 where
/// there is no magnitude, and where the row is zero.
at::Tensor output_factors(const model::Projection& projection,
                          const std::vector<model::AdaptedPart>& parts, const at::Tensor& norms_F);

/// Adds the gradients of magnitudes, from that of the outputs y = z * factors; returns that of z.
at::Tensor magnitude_backward(const model::Projection& projection,
                              const std::vector<model::AdaptedPart>& parts, const at::Tensor& dy_NF,
                              const at::Tensor& z_NF, const at::Tensor& norms_F);

}  // namespace finetune::adapters::lora
