// SPDX-License-Identifier: Apache-2.0
// Skips every test, with the reason, where there is no GPU to test.
#include <gtest/gtest.h>

#include <iostream>

#include "gpu/device_under_test.hpp"
#include "model/device.hpp"

namespace finetune::tests::gpu {
namespace {

class RequireDevice : public testing::Environment {
 public:
  void SetUp() override {
    if (!prepare_device()) GTEST_SKIP() << "skipped: there is no GPU here";
    std::cout << "device under test: " << device_name() << ", compute capability "
              << model::compute_capability(device()) / 10.0 << "\n";
  }
};

[[maybe_unused]] const testing::Environment* const require_device =
    testing::AddGlobalTestEnvironment(new RequireDevice());

}  // namespace
}  // namespace finetune::tests::gpu
