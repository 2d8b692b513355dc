// SPDX-License-Identifier: Apache-2.0
// model/device.hpp in a build without CUDA: everything is computed on the CPU.
#include "model/device.hpp"

#include "core/error.hpp"

namespace finetune::model {

at::Device compute_device(int index) {
  core::check(index < 0, "there is no GPU in a build without CUDA");
  return at::kCPU;
}

int compute_capability(at::Device) {
  return 0;
}

}  // namespace finetune::model
