#pragma once
// SPDX-License-Identifier: Apache-2.0
// Flat buffers that are used again instead of being returned to the system.

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "comm/group.hpp"
#include "shard/detail/remembered.hpp"

namespace finetune::shard {

/// Two gathered units rotate through the same two buffers: asking the system for fresh pages a
/// hundred times a step costs more than the copy into them.
class BufferPool {
 public:
  /// `group`, if there is one, is told of each buffer.
  explicit BufferPool(at::ScalarType dtype, at::Device device = at::kCPU,
                      std::shared_ptr<comm::Group> group = nullptr)
      : options_(at::TensorOptions().dtype(dtype).device(device)), remembered_(std::move(group)) {}

  /// [count], contents undefined, of a buffer at most twice as large. Give it back with `put`.
  at::Tensor take(std::int64_t count);
  void put(at::Tensor buffer);

 private:
  at::TensorOptions options_;
  Remembered remembered_;
  std::vector<at::Tensor> free_;  ///< whole buffers; what `take` returns are their first elements
};

}  // namespace finetune::shard
