#pragma once
// SPDX-License-Identifier: Apache-2.0
// Uninitialised memory for what a kernel computes on its way.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/place.hpp"

namespace finetune::kernels {

/// Memory of libtorch's allocator for a GPU. Given back, it is only used by what comes later on the
/// place's stream, so that nobody has to wait for the kernels that use it.
std::shared_ptr<void> gpu_memory(std::size_t bytes);

/// `count` elements where `place` is.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t count, const Place& place = {}) {
    const auto size = static_cast<std::size_t>(count);
    if (place.is_gpu()) {
      on_gpu_ = gpu_memory(size * sizeof(T));
    } else {
      on_host_ = std::make_unique_for_overwrite<T[]>(size);
    }
  }

  T* data() const { return on_gpu_ ? static_cast<T*>(on_gpu_.get()) : on_host_.get(); }

 private:
  std::unique_ptr<T[]> on_host_;
  std::shared_ptr<void> on_gpu_;
};

}  // namespace finetune::kernels
