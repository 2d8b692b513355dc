// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "gpu/device_under_test.hpp"

namespace finetune::tests::gpu {

std::string device_name() {
  cudaDeviceProp properties{};
  return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name : "unknown";
}

}  // namespace finetune::tests::gpu
