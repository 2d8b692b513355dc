#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which elements of a parameter a rank of an axis holds.

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor_slice.hpp"
#include "model/parameter_table.hpp"

namespace finetune::shard {

/// One rank's place on an axis of the mesh.
struct AxisPlace {
  std::string_view axis;
  std::int64_t size = 1;
  std::int64_t index = 0;
};

/// The boxes of `parameter` that the rank at `place` holds, in the order of its memory: the whole
/// where the axis does not split it; its part of each matrix in the tensor where it does, indices
/// [size * index / num, size * (index + 1) / num) of the split dim. Boxes without elements are left
/// out. Over all places of an axis that splits it every element is in exactly one box.
/// Throws: ErrorKind::bug for a place that its axis does not have.
std::vector<core::Box> held_boxes(const model::Parameter& parameter, const AxisPlace& place);

}  // namespace finetune::shard
