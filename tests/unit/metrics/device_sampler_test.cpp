// SPDX-License-Identifier: Apache-2.0
#include "metrics/device_sampler.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

#include "support/folders.hpp"

namespace finetune::metrics::device_sampler_test {
namespace {

namespace fs = std::filesystem;

class Sampler : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder);
    ::setenv("FINETUNE_NVML_STAND_IN", answers.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("FINETUNE_NVML_STAND_IN");
    fs::remove_all(folder);
  }

  void answer(const std::string& lines) const { std::ofstream(answers) << lines; }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((folder / file).parent_path());
    std::ofstream(folder / file) << text;
  }
  SampledDevice gpu() const {
    return {.gpu_uuid = "GPU-1",
            .root = folder,
            .nvml = (tests::build_folder() / "tests/nvml/libnvidia-ml.so.1").string()};
  }

  fs::path folder = fs::path(testing::TempDir()) / ("device_sampler." + std::to_string(::getpid()));
  fs::path answers = folder / "answers";
};

TEST_F(Sampler, TellsMeansOfWhatItSaw) {
  answer(
      "* utilisation 50\n* power 300000\n* temperature 60\n* clock 1700\n* memory 4096\n"
      "* pcie_sent 1000000\n* pcie_received 500000\n");
  DeviceSampler sampler(gpu(), 0);
  sampler.sample(1);
  answer(
      "* utilisation 100\n* power 500000\n* temperature 70\n* clock 1800\n* memory 8192\n"
      "GPU-1 pcie_sent 3000000\n* pcie_sent 9\n* pcie_received 500000\n");
  sampler.sample(1);
  const DeviceUse use = sampler.take();
  EXPECT_DOUBLE_EQ(use.values[DeviceUse::gpu_use], 0.75);
  EXPECT_DOUBLE_EQ(use.values[DeviceUse::gpu_power_w], 400);
  EXPECT_DOUBLE_EQ(use.values[DeviceUse::gpu_temperature_c], 65);
  EXPECT_DOUBLE_EQ(use.values[DeviceUse::gpu_clock_mhz], 1750);
  EXPECT_DOUBLE_EQ(use.values[DeviceUse::gpu_memory_bytes], 6144);
  EXPECT_DOUBLE_EQ(use.values[DeviceUse::pcie_gb_per_s], 2.5);
  EXPECT_GT(use.values[DeviceUse::rss_bytes], 1 << 20);
  EXPECT_TRUE(std::isnan(use.values[DeviceUse::nvlink_gb_per_s])) << "it does not say";
  const DeviceUse again = sampler.take();
  EXPECT_DOUBLE_EQ(again.values[DeviceUse::gpu_power_w], 400) << "the last that is known";
}

TEST_F(Sampler, AddsUpWhatGrewSinceItBegan) {
  answer("* energy 5000000\n* nvlink_sent 1000000\n* nvlink_received 0\n* uncorrected 7\n");
  DeviceSampler sampler(gpu(), 0);
  answer("* energy 5600000\n* nvlink_sent 3000000\n* nvlink_received 1000000\n* uncorrected 9\n");
  sampler.sample(2);
  const DeviceUse use = sampler.take();
  EXPECT_DOUBLE_EQ(use.gpu_energy_j, 600);
  EXPECT_DOUBLE_EQ(use.memory_errors, 2) << "those of before are others'";
  EXPECT_DOUBLE_EQ(use.values[DeviceUse::nvlink_gb_per_s], 3e6 * 1024 / 2 * 1e-9);
}

TEST_F(Sampler, CallsSlowWhatIsSlowInHalfOfTheSamples) {
  DeviceSampler sampler(gpu(), 0);
  for (const char* bits : {"0x40", "0x40", "0x0", "0x8"}) {
    answer(std::string("* slow ") + bits + "\n");
    sampler.sample(1);
  }
  EXPECT_EQ(sampler.take().slow_bits, 0x40U);
  answer("* slow 0x0\n");
  sampler.sample(1);
  EXPECT_EQ(sampler.take().slow_bits, 0U);
}

TEST_F(Sampler, RemembersWhatTheDriverTold) {
  answer("* xid 79\n");
  DeviceSampler sampler(gpu(), 0);
  sampler.sample(1);
  answer("");
  sampler.sample(1);
  EXPECT_EQ(sampler.take().xid, 79);
}

TEST_F(Sampler, DoesWithoutALibraryAndWithoutTheDevice) {
  SampledDevice without = gpu();
  without.nvml = "libfinetune-no-such-library.so.1";
  answer("* missing 1\n* power 300000\n");
  for (const SampledDevice& device : {without, gpu(), SampledDevice{}}) {
    DeviceSampler sampler(device, 0);
    sampler.sample(1);
    const DeviceUse use = sampler.take();
    EXPECT_TRUE(std::isnan(use.values[DeviceUse::gpu_power_w]));
    EXPECT_GE(use.values[DeviceUse::cores], 0);
    EXPECT_EQ(use.gpu_energy_j, 0);
  }
}

TEST_F(Sampler, AddsUpTheEnergyOfPackagesAcrossTheEndOfTheirCounters) {
  for (const char* package : {"intel-rapl:0", "intel-rapl:1"}) {
    write(std::string("sys/class/powercap/") + package + "/max_energy_range_uj", "262143328850\n");
    write(std::string("sys/class/powercap/") + package + "/energy_uj", "262142328850\n");
  }
  write("sys/class/powercap/intel-rapl:0:0/energy_uj", "1\n");
  SampledDevice node{.tells_of_node = true, .root = folder};
  DeviceSampler sampler(node, 0);
  write("sys/class/powercap/intel-rapl:0/energy_uj", "2000000\n");
  write("sys/class/powercap/intel-rapl:1/energy_uj", "262142828850\n");
  write("sys/class/powercap/intel-rapl:0:0/energy_uj", "900000000\n");
  sampler.sample(1);
  EXPECT_NEAR(sampler.take().cpu_energy_j, 3 + 0.5, 1e-6);
}

TEST_F(Sampler, LooksByAThreadOfItsOwn) {
  answer("* power 300000\n");
  DeviceSampler sampler(gpu(), 1e-3);
  while (std::isnan(sampler.take().values[DeviceUse::gpu_power_w])) {
  }
}

}  // namespace
}  // namespace finetune::metrics::device_sampler_test
