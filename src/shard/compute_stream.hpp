#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tells comm, which knows no tensors, where tensors are computed; and waits for them.

#include <ATen/ATen.h>

namespace finetune::shard {

/// The cudaStream_t that this thread's tensor operations on the current GPU run on: what
/// comm::DeviceStream asks for. Null in builds without CUDA.
void* compute_stream();

/// Returns when the tensor operations that this thread has started on `device` are done: before a
/// clock is read. On the CPU they are.
void wait_for_compute(at::Device device);

}  // namespace finetune::shard
