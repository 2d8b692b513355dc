#pragma once
// SPDX-License-Identifier: Apache-2.0
// Flat buffers that are used again instead of being returned to the system.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace finetune::shard {

/// Two gathered units rotate through the same two buffers: asking the system for fresh pages a
/// hundred times a step costs more than the copy into them.
class BufferPool {
 public:
  explicit BufferPool(at::ScalarType dtype, at::Device device = at::kCPU)
      : options_(at::TensorOptions().dtype(dtype).device(device)) {}

  /// [count], contents undefined, of a buffer at most twice as large. Give it back with `put`.
  at::Tensor take(std::int64_t count);
  void put(at::Tensor buffer);

 private:
  at::TensorOptions options_;
  std::vector<at::Tensor> free_;  ///< whole buffers; what `take` returns are their first elements
};

}  // namespace finetune::shard
