#pragma once
// SPDX-License-Identifier: Apache-2.0
// What kernels of the simulated device's own have in common.

#include <ATen/ATen.h>

#include "simulated/device/counters.hpp"
#include "simulated/device/device.hpp"

namespace finetune::simulated {

inline Operation launched(const char* name) {
  Counters::here().launch(name);
  return Operation(name);
}

inline at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  at::Tensor result = at::empty(tensor.sizes(), tensor.options().device(device));
  kernel_view(result, Touch::writes).copy_(tensor);
  return result;
}

inline at::Tensor of_device(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().is_privateuseone(), "a kernel of the device was given host memory");
  return kernel_view(tensor, Touch::reads);
}

}  // namespace finetune::simulated
