#pragma once
// SPDX-License-Identifier: Apache-2.0
// A run of consecutive elements of a logical tensor: the common currency of shards, checkpoints and
// weight files.

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "core/dtype.hpp"

namespace finetune::core {

/// Elements [offset, offset + count) of the row-major logical tensor `name` of shape `shape`.
struct TensorSlice {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;
  std::int64_t offset = 0;  ///< first element
  std::int64_t count = 0;   ///< elements; 0 is allowed and means nothing

  std::int64_t size_bytes() const { return count * core::size_bytes(dtype); }
};

/// Product of the dims; 1 for a scalar.
inline std::int64_t num_elements(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace finetune::core
