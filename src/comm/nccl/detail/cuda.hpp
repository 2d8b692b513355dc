#pragma once
// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime and the check of its return codes.

#include <cuda_runtime_api.h>

#include "comm/detail/cuda_errors.hpp"

namespace finetune::comm {

/// Throws what CUDA returned from `call`, if it is an error: ErrorKind::environment, or bug if CUDA
/// was called wrongly (detail/cuda_errors.hpp).
inline void check_cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess) fail_cuda(static_cast<int>(code), cudaGetErrorString(code), call);
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
