#pragma once
// SPDX-License-Identifier: Apache-2.0
// Weights out of the gathered bytes of a frozen unit.

#include <ATen/ATen.h>

#include <vector>

#include "model/parameter_table.hpp"
#include "plan/shard_map.hpp"

namespace finetune::shard {

/// A frozen tensor and where its planes lie in the bytes of its unit.
struct FrozenRow {
  const model::Parameter& row;
  std::vector<plan::FrozenPlane> planes;
};

/// Neighbouring tensors that are not packed, as one: a view. `bytes` u8, of the whole unit.
/// -> [sum of dim 0, ...].
at::Tensor dense_view(const at::Tensor& bytes, const std::vector<FrozenRow>& rows,
                      at::ScalarType dtype);

/// Matrices of which some are packed, one below the other, in new memory. -> [sum of dim 0, dim 1],
/// strided as the planes like it.
at::Tensor unpack(const at::Tensor& bytes, const std::vector<FrozenRow>& rows,
                  at::ScalarType dtype);

}  // namespace finetune::shard
