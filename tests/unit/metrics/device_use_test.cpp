// SPDX-License-Identifier: Apache-2.0
#include "metrics/device_use.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "support/ranks.hpp"

namespace finetune::metrics::device_use_test {
namespace {

std::vector<std::string> hosts() {
  std::vector<std::string> all;
  for (int rank = 0; rank < tests::world().size(); ++rank)
    all.push_back("node" + std::to_string(rank));
  return all;
}

/// Of rank r: clocks of 1,800 MHz, (r + 1) 100 W and 1 kJ.
DeviceUse healthy() {
  DeviceUse use;
  use.values[DeviceUse::gpu_clock_mhz] = 1800;
  use.values[DeviceUse::gpu_power_w] = 100.0 * (tests::world().rank() + 1);
  use.gpu_energy_j = 1000;
  return use;
}

bool is_last() {
  return tests::world().rank() == tests::world().size() - 1;
}

TEST(DeviceUse, IsSpreadOverRanksAndEnergyIsAddedUp) {
  const int size = tests::world().size();
  const DeviceReport report = gather_devices(tests::world(), healthy(), hosts());
  EXPECT_EQ(report.values.at("gpu_power_w").min, 100);
  EXPECT_EQ(report.values.at("gpu_power_w").max, 100.0 * size);
  EXPECT_EQ(report.gpu_energy_j, 1000.0 * size);
  EXPECT_FALSE(report.values.contains("nvlink_gb_per_s")) << "nobody says";
  EXPECT_TRUE(report.slow.empty());
  EXPECT_EQ(energy_text(report, 2'000'000),
            fmt::format("energy: GPUs {:.3g} kWh, {:.3g} kJ per million tokens",
                        size * 1000 / 3.6e6, size / 2.0));
  EXPECT_EQ(energy_text({}, 5), "");
}

TEST(DeviceUse, NamesGpusThatAreSlow) {
  DeviceUse use = healthy();
  if (is_last()) use.slow_bits = 0x40 | 0x4;
  const int last = tests::world().size() - 1;
  const DeviceReport report = gather_devices(tests::world(), use, hosts());
  ASSERT_EQ(report.slow.size(), 1);
  EXPECT_EQ(report.slow[0].rank, last);
  EXPECT_EQ(report.slow[0].host, "node" + std::to_string(last));
  EXPECT_EQ(report.slow[0].why, "its clocks are lowered: heat (hardware), power cap");
  if (last < 2) return;
  use = healthy();
  if (is_last()) use.values[DeviceUse::gpu_clock_mhz] = 1200;
  const DeviceReport slower = gather_devices(tests::world(), use, hosts());
  ASSERT_EQ(slower.slow.size(), 1);
  EXPECT_EQ(slower.slow[0].why, "it runs at 1200 MHz, the middle one at 1800");
}

TEST(DeviceUse, NamesGpusWithErrors) {
  DeviceUse use = healthy();
  if (is_last()) {
    use.memory_errors = 2;
    use.xid = 79;
  }
  const DeviceReport report = gather_devices(tests::world(), use, hosts());
  ASSERT_EQ(report.slow.size(), 1);
  EXPECT_EQ(report.slow[0].why,
            "its memory had 2 errors that could not be corrected; its driver told Xid 79");
  const core::Json row = core::parse_json("{" + to_json_field(report) + "}", "row", 1);
  EXPECT_EQ(row.at("devices").at("slow").at(0).at("why"), report.slow[0].why);
  EXPECT_EQ(row.at("devices").at("gpu_power_w").at(0), 100);
}

}  // namespace
}  // namespace finetune::metrics::device_use_test
