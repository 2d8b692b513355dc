// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/axes.hpp"

namespace finetune::plan {

std::int64_t AxisSizes::size() const {
  std::int64_t ranks = 1;
  for (const std::int64_t size : sizes_)
    ranks *= size;
  return ranks;
}

std::int64_t AxisSizes::size(const MeshGroup& group) const {
  std::int64_t ranks = 1;
  for (std::size_t axis = 0; axis < num_axes; ++axis)
    if (group.axes.contains(axis)) ranks *= sizes_[axis];
  return ranks;
}

std::int64_t AxisSizes::stride(const MeshGroup& group) const {
  std::int64_t ranks = 1;
  for (std::size_t axis = num_axes; axis-- > 0 && !group.axes.contains(axis);)
    ranks *= sizes_[axis];
  return ranks;
}

AxisSizes::Place AxisSizes::place(const MeshGroup& group, std::int64_t position) const {
  Place place;
  std::int64_t ranks = size();
  for (std::size_t axis = 0; axis < num_axes; ++axis) {
    ranks /= sizes_[axis];
    const std::int64_t along = position / ranks % sizes_[axis];
    std::int64_t& number = group.axes.contains(axis) ? place.number : place.group;
    number = number * sizes_[axis] + along;
  }
  return place;
}

}  // namespace finetune::plan
