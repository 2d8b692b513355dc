// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_under_test.hpp"

namespace finetune::tests::gpu {

std::string device_name() {
  return "simulated";
}

}  // namespace finetune::tests::gpu
