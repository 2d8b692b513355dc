#pragma once
// SPDX-License-Identifier: Apache-2.0
// A run of elements of a logical tensor, or of a box of it: the common currency of shards,
// checkpoints and weight files.

#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.hpp"

namespace finetune::core {

/// Product of the dims; 1 for a scalar.
inline std::int64_t num_elements(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// The elements of a tensor whose index in every dim d is in [begin[d], begin[d] + extent[d]).
/// Their order is row-major within the box.
struct Box {
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> extent;

  std::int64_t num_elements() const { return core::num_elements(extent); }
  friend auto operator<=>(const Box&, const Box&) = default;
};

inline Box whole_box(const std::vector<std::int64_t>& shape) {
  return {std::vector<std::int64_t>(shape.size(), 0), shape};
}

/// Whether `box` has as many dims as `shape` and no element outside of it. Nothing overflows.
inline bool is_inside(const Box& box, const std::vector<std::int64_t>& shape) {
  if (box.begin.size() != shape.size() || box.extent.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (box.begin[d] < 0 || box.extent[d] < 0 || box.begin[d] > shape[d]) return false;
    if (box.extent[d] > shape[d] - box.begin[d]) return false;
  }
  return true;
}

/// Elements [offset, offset + count) of `box`, in its own order, of the logical tensor `name`.
struct TensorSlice {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;
  std::int64_t offset = 0;      ///< first element, within the box
  std::int64_t count = 0;       ///< elements; 0 is allowed and means nothing
  std::optional<Box> box = {};  ///< nothing: the whole tensor

  std::int64_t size_bytes() const { return count * core::size_bytes(dtype); }
  Box box_or_whole() const { return box ? *box : whole_box(shape); }
};

}  // namespace finetune::core
