#pragma once
// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU as tensors used it, to hold against the plan.

#include <ATen/ATen.h>

#include <cstdint>

namespace finetune::shard {

/// The most bytes at one time.
struct PeakBytes {
  std::int64_t tensors = 0;   ///< that lived, as the allocator handed them out, rounding included
  std::int64_t reserved = 0;  ///< that the allocator held, for tensors to come as well
};
/// Of libtorch's CUDA allocator on `device`. Zeros on the CPU and in builds without CUDA.
PeakBytes peak_device_bytes(at::Device device);

/// Of tensors that live now, as the allocator handed them out. As above.
std::int64_t live_device_bytes(at::Device device);

}  // namespace finetune::shard
