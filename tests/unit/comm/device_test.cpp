// SPDX-License-Identifier: Apache-2.0
#include "comm/device.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "comm/agree.hpp"
#include "comm/detail/installed_gpus.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"

namespace finetune::comm::device_test {
namespace {

using Paths = std::vector<std::filesystem::path>;

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

/// What gpus_to_use throws; empty if it decides.
std::string refusal(UseOfGpus asked, const GpuFacts& facts) {
  return tests::refusal_of(core::ErrorKind::environment, [&] { gpus_to_use(asked, facts); });
}

const CudaState works = {.is_built = true, .usable = 4, .driver_for = "13.0", .built_for = "13.0"};
const CudaState old_driver = {.is_built = true,
                              .problem = "CUDA driver version is insufficient",
                              .driver_for = "12.4",
                              .built_for = "13.0"};
const CudaState no_driver = {.is_built = true, .problem = "no driver", .built_for = "13.0"};

TEST(UseOfGpus, TakesThoseThatCudaSees) {
  const GpuFacts facts{.cuda = works, .installed = 4, .driver = "580.65"};
  EXPECT_EQ(gpus_to_use(UseOfGpus::automatic, facts), 4);
  EXPECT_EQ(gpus_to_use(UseOfGpus::always, facts), 4);
  EXPECT_EQ(gpus_to_use(UseOfGpus::never, facts), 0);
  EXPECT_EQ(why_on_cpu(UseOfGpus::never, facts), "as train.device says");
}

TEST(UseOfGpus, ADriverThatIsTooOldIsNoReasonToComputeOnTheCpu) {
  const GpuFacts facts{.cuda = old_driver, .installed = 8, .driver = "550.54.15"};
  for (const UseOfGpus asked : {UseOfGpus::automatic, UseOfGpus::always}) {
    const std::string message = refusal(asked, facts);
    for (const char* part : {"CUDA driver version is insufficient", "driver 550.54.15", "12.4",
                             "libtorch was built for CUDA 13.0", "train.device = \"cpu\""})
      EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
  EXPECT_EQ(gpus_to_use(UseOfGpus::never, facts), 0);
}

TEST(UseOfGpus, ANodeWithoutAnyComputesOnTheCpuUnlessAskedForOne) {
  const GpuFacts facts{.cuda = no_driver};
  EXPECT_EQ(gpus_to_use(UseOfGpus::automatic, facts), 0);
  EXPECT_EQ(why_on_cpu(UseOfGpus::automatic, facts), "");
  EXPECT_NE(refusal(UseOfGpus::always, facts).find("this node has none"), std::string::npos);
}

TEST(UseOfGpus, HiddenOnesAreNotExpected) {
  const GpuFacts facts{.cuda = no_driver, .installed = 2, .driver = "580.65", .are_hidden = true};
  EXPECT_EQ(gpus_to_use(UseOfGpus::automatic, facts), 0);
  EXPECT_EQ(why_on_cpu(UseOfGpus::automatic, facts), "CUDA_VISIBLE_DEVICES names no GPU");
  EXPECT_NE(refusal(UseOfGpus::always, facts).find("CUDA_VISIBLE_DEVICES"), std::string::npos);
}

TEST(UseOfGpus, AreHiddenByWhatCudaTakesForNone) {
  for (const char* none : {"", "-1", "-1,0", "NoDevFiles"})
    EXPECT_TRUE(names_no_gpu(none)) << none;
  for (const char* some : {"0", "1,-1", "GPU-1b2c", "MIG-3"})
    EXPECT_FALSE(names_no_gpu(some)) << some;
}

TEST(UseOfGpus, ADriverWithoutDevicesIsNotPassedOverSilently) {
  const GpuFacts facts{.cuda = no_driver, .driver = "580.65"};
  EXPECT_EQ(gpus_to_use(UseOfGpus::automatic, facts), 0);
  EXPECT_NE(why_on_cpu(UseOfGpus::automatic, facts).find("driver 580.65 is loaded"),
            std::string::npos);
}

TEST(UseOfGpus, ABuildWithoutCudaSaysSo) {
  const GpuFacts facts{.installed = 1, .driver = "580.65"};
  EXPECT_EQ(gpus_to_use(UseOfGpus::automatic, facts), 0);
  EXPECT_EQ(why_on_cpu(UseOfGpus::automatic, facts),
            "this program was built without CUDA; this node has 1 GPU");
  EXPECT_NE(refusal(UseOfGpus::always, facts).find("-DFINETUNE_WITH_CUDA=ON"), std::string::npos);
}

TEST(UseOfGpus, ThoseOfOtherJobsAreNotExpected) {
  const GpuFacts facts{.cuda = no_driver, .installed = 4, .denied = 4, .driver = "580.65"};
  EXPECT_EQ(gpus_to_use(UseOfGpus::automatic, facts), 0);
  EXPECT_EQ(why_on_cpu(UseOfGpus::automatic, facts), "this job may use none of this node's 4 GPUs");
  const std::string message = refusal(UseOfGpus::always, facts);
  for (const char* part : {"none of 4 is this job's", "--gpus-per-node"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(UseOfGpus, OneThatDoesNotAnswerIsNoReasonToComputeOnTheCpu) {
  const GpuFacts facts{.cuda = no_driver,
                       .installed = 4,
                       .denied = 2,
                       .broken = {"/dev/nvidia1: Input/output error"},
                       .driver = "580.65"};
  const std::string message = refusal(UseOfGpus::automatic, facts);
  for (const char* part :
       {"no answer from 1 of 2", "/dev/nvidia1: Input/output error", "NVRM: Xid"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(UseOfGpus, WarnsOfThoseThatCudaDoesNotSee) {
  GpuFacts facts{.cuda = works, .installed = 4, .driver = "580.65"};
  EXPECT_EQ(missing_gpus(facts), "");
  facts.installed = 8;
  facts.denied = 4;
  EXPECT_EQ(missing_gpus(facts), "") << "the others are other jobs'";
  facts.denied = 3;
  EXPECT_EQ(missing_gpus(facts),
            "CUDA sees 4 of the 5 GPUs that this job may use: is one broken, or in MIG mode?");
  facts.broken = {"/dev/nvidia7: No such device"};
  EXPECT_EQ(missing_gpus(facts),
            "CUDA sees 4 of the 5 GPUs that this job may use: /dev/nvidia7: No such device");
  facts.are_chosen = true;
  EXPECT_EQ(missing_gpus(facts), "") << "CUDA_VISIBLE_DEVICES left it out";
}

TEST(InstalledGpus, AreCountedByTheDriversDevices) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() /
      ("finetune-gpus-" + std::to_string(::getpid()) + "-" + std::to_string(tests::world().rank()));
  std::filesystem::create_directories(root / "dev");
  std::filesystem::create_directories(root / "proc/driver/nvidia");
  EXPECT_TRUE(installed_gpus(root).devices.empty());
  for (const char* name : {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"})
    std::ofstream(root / "dev" / name) << "";
  std::ofstream(root / "proc/driver/nvidia/version")
      << "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC\n";
  const InstalledGpus found = installed_gpus(root);
  EXPECT_EQ(found.devices, (Paths{root / "dev/nvidia0", root / "dev/nvidia1"}));
  EXPECT_EQ(found.driver, "535.129.03");
  const OpenGpus open = open_gpus(found.devices);
  EXPECT_EQ(open.denied, 0);
  EXPECT_TRUE(open.broken.empty());
  std::filesystem::remove_all(root);
}

TEST(InstalledGpus, ThatTheJobMayNotOpenAreNotBroken) {
  const Paths devices = {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"};
  const OpenGpus open = open_gpus(devices, [](const std::filesystem::path& device) {
    return device == "/dev/nvidia0"   ? EPERM
           : device == "/dev/nvidia1" ? EACCES
           : device == "/dev/nvidia2" ? EIO
                                      : 0;
  });
  EXPECT_EQ(open.denied, 2);
  EXPECT_EQ(open.broken, std::vector<std::string>{"/dev/nvidia2: Input/output error"});
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
