#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether what ranks would write makes up a checkpoint: asked before anything is trained, of slices
// without their elements. Neither MPI nor files.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor_slice.hpp"

namespace finetune::checkpoint {

/// A slice that a rank would write.
struct PlannedSlice {
  std::string kind;
  core::TensorSlice slice;
  std::int64_t rank = 0;
};

/// What a checkpoint of these slices would lack, in words that name tensor, element and ranks: the
/// ranks describe a tensor differently, a name or a box is not allowed, or an element is in no
/// slice or in several. Nothing: each tensor is tiled. Tensors without elements need no slice.
std::optional<std::string> tiling_problem(std::vector<PlannedSlice> slices);

}  // namespace finetune::checkpoint
