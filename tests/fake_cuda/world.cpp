// SPDX-License-Identifier: Apache-2.0
// Connects the fake of a test's ranks, and looks after each test what the code under test did that
// it must not.
#include <gtest/gtest.h>

#include "fake_cuda/fake.hpp"

namespace finetune::fake {
namespace {

class Violations : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { set({}); }
  void OnTestEnd(const testing::TestInfo&) override {
    wait_until_idle();
    for (const std::string& violation : take_violations())
      ADD_FAILURE() << violation;
    EXPECT_EQ(num_communicators(), 0);
    EXPECT_EQ(num_registered(), 0);
  }
};

class World : public testing::Environment {
  void SetUp() override {
    connect();
    testing::UnitTest::GetInstance()->listeners().Append(new Violations);
  }
  void TearDown() override { disconnect(); }
};

[[maybe_unused]] const auto* const world = testing::AddGlobalTestEnvironment(new World);

}  // namespace
}  // namespace finetune::fake
