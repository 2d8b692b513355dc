// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/CUDAContext.h>

#include "model/device.hpp"

namespace finetune::model {

at::Device compute_device(int index) {
  if (index < 0) return at::kCPU;
  return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
}

int compute_capability(at::Device device) {
  if (device.is_cpu()) return 0;
  // libtorch keeps them.
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(device.index());
  return 10 * properties->major + properties->minor;
}

}  // namespace finetune::model
