#pragma once
// SPDX-License-Identifier: Apache-2.0
// Matrices out of the planes that they are kept as.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "model/weight.hpp"

namespace finetune::model {

/// Matrices of which some are packed, one below the other, in new memory. -> [sum of dim 0, dim 1],
/// strided as the planes like it.
at::Tensor unpack(const std::vector<MatrixPlanes>& matrices, at::ScalarType dtype);

/// Expert `i` of all those of a layer in MXFP4, in new memory: [out, in].
at::Tensor unpack_expert(const MatrixPlanes& all, std::int64_t i, at::ScalarType dtype);

}  // namespace finetune::model
