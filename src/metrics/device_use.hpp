#pragma once
// SPDX-License-Identifier: Apache-2.0
// What the devices of all ranks did between two reports, and which of them are slow.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "metrics/detail/spread.hpp"

namespace finetune::metrics {

/// Of one rank: means of what was sampled since the last report. Not a number: nobody says.
struct DeviceUse {
  static constexpr std::array names = {
      "gpu_use",       "gpu_memory_bytes", "gpu_power_w", "gpu_temperature_c", "gpu_clock_mhz",
      "pcie_gb_per_s", "nvlink_gb_per_s",  "cores",       "rss_bytes"};
  enum Value : std::size_t {
    gpu_use,           ///< part of the time in which something ran on it
    gpu_memory_bytes,  ///< in use, by whomever
    gpu_power_w,
    gpu_temperature_c,
    gpu_clock_mhz,    ///< of its multiprocessors
    pcie_gb_per_s,    ///< both directions
    nvlink_gb_per_s,  ///< both directions, all links
    cores,            ///< that this process kept busy
    rss_bytes,        ///< of this process
    num_values
  };
  static_assert(names.size() == num_values);

  DeviceUse();

  std::array<double, num_values> values;
  double gpu_energy_j = 0;      ///< since sampling began
  double cpu_energy_j = 0;      ///< the same, of a node's processors: told by one rank of each node
  double memory_errors = 0;     ///< of the GPU's memory, not corrected, since sampling began
  double xid = 0;               ///< the last that the driver told; 0: none
  std::uint64_t slow_bits = 0;  ///< reasons for low clocks in half of the samples or more
};

/// A GPU that is slower than it could be.
struct SlowDevice {
  int rank = 0;
  std::string host;
  std::string why;  ///< "its clocks are lowered: heat (hardware)"
};

/// Of all ranks.
struct DeviceReport {
  /// By name; values that no rank knows are not there.
  std::map<std::string, Spread> values;
  double gpu_energy_j = 0;  ///< of all GPUs since sampling began
  double cpu_energy_j = 0;  ///< of all nodes whose energy can be read
  std::vector<SlowDevice> slow;

  bool is_empty() const { return values.empty(); }
};

/// A GPU whose clock is below this part of the middle one's is slow.
inline constexpr double slow_clock = 0.9;

/// `hosts`: of all ranks. Collective on `world`; the result is for the root.
DeviceReport gather_devices(const comm::Communicator& world, const DeviceUse& own,
                            const std::vector<std::string>& hosts);

/// A field of a step's object in metrics.jsonl: "devices": {...}.
std::string to_json_field(const DeviceReport& report);

/// For people, at the end of a run; empty where no energy is known. `tokens` of this start.
std::string energy_text(const DeviceReport& report, std::int64_t tokens);

}  // namespace finetune::metrics
