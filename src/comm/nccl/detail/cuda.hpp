#pragma once
// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime and the check of its return codes.

#include <cuda_runtime_api.h>

#include "core/error.hpp"

namespace finetune::comm {

/// Throws ErrorKind::environment naming `call` if CUDA returned an error.
inline void check_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  core::fail(core::ErrorKind::environment, {call, "CUDA reports an error", cudaGetErrorString(code),
                                            "Look at the device and its driver: nvidia-smi."});
}

/// True if all work before an event, or on a stream, is done, as `call` says of it.
inline bool is_done(cudaError_t code, const char* call) {
  if (code == cudaErrorNotReady) {
    cudaGetLastError();  // forgets it, or torch's next check would report it
    return false;
  }
  check_cuda(code, call);
  return true;
}

}  // namespace finetune::comm
