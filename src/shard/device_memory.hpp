#pragma once
// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU as tensors used it, to hold against the plan.

#include <ATen/ATen.h>

#include <cstdint>

namespace finetune::shard {

/// The highest sum of the bytes of tensors that lived on `device` at one time, as libtorch's CUDA
/// allocator handed them out (its rounding included). 0 on the CPU and in builds without CUDA.
std::int64_t peak_device_bytes(at::Device device);

}  // namespace finetune::shard
