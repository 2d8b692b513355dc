// SPDX-License-Identifier: Apache-2.0
#include "comm/device.hpp"

#include <gtest/gtest.h>

#include <string>

#include "comm/agree.hpp"
#include "support/ranks.hpp"

namespace finetune::comm::device_test {
namespace {

/// What require_own_devices says about this rank's `uuid`; empty if it agrees.
std::string complaint(const std::string& uuid) {
  try {
    require_own_devices(tests::world(), uuid);
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::environment);
    return error.what();
  }
  return "";
}

TEST(Device, ARankTakesTheDeviceOfItsLocalRank) {
  EXPECT_EQ(device_of(4, 0), 0);
  EXPECT_EQ(device_of(4, 3), 3);
  EXPECT_THROW(device_of(4, 4), core::Error);
}

TEST(Device, ARankThatSeesOneDeviceTakesIt) {
  EXPECT_EQ(device_of(1, 3), 0);
}

TEST(Device, RanksWithTheirOwnDevicesAgree) {
  EXPECT_EQ(complaint("GPU-" + std::to_string(tests::world().rank())), "");
  EXPECT_EQ(complaint(""), "");
}

TEST(Device, TwoRanksOnOneGpuAreRefused) {
  if (tests::world().size() == 1) GTEST_SKIP() << "needs two ranks";
  const std::string message = complaint("GPU-a");
  EXPECT_TRUE(message.starts_with("rank 1: it computes on GPU GPU-a, and so does rank 0 ("))
      << message;
}

TEST(Device, RanksWithAndWithoutGpuAreRefused) {
  const auto& world = tests::world();
  if (world.size() == 1) GTEST_SKIP() << "needs two ranks";
  const bool last = world.rank() == world.size() - 1;
  const std::string message = complaint(last ? "" : "GPU-" + std::to_string(world.rank()));
  EXPECT_TRUE(message.starts_with("rank " + std::to_string(world.size() - 1) + ": it has no GPU"))
      << message;
}

TEST(Device, WithoutGpusEveryRankComputesOnTheCpu) {
  if (num_gpus() > 0) GTEST_SKIP() << "this machine has GPUs";
  const Device device = choose_device(tests::world(), tests::mpi().node());
  EXPECT_EQ(device.index, -1);
  EXPECT_EQ(device.uuid, "");
}

}  // namespace
}  // namespace finetune::comm::device_test
