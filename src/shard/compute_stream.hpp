#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tells comm, which knows no tensors, where tensors are computed.

namespace finetune::shard {

/// The cudaStream_t that this thread's tensor operations on the current GPU run on: what
/// comm::DeviceStream asks for. Null in builds without CUDA.
void* compute_stream();

}  // namespace finetune::shard
