#pragma once
// SPDX-License-Identifier: Apache-2.0
// Samples this rank's device, gathers what those of all ranks did, and warns of slow ones.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "metrics/device_sampler.hpp"
#include "metrics/device_use.hpp"
#include "train/run/detail/reporter.hpp"
#include "world/world.hpp"

namespace finetune::train {

class DeviceKeeper {
 public:
  /// `interval_s` between two samples; 0: nothing is sampled, and reports are empty. Collective on
  /// the world.
  DeviceKeeper(const world::World& world, double interval_s);

  /// Of the time since the last one, with warnings of GPUs that are slow and were not yet told to
  /// be; nothing where nothing is sampled. Collective on the world; what it returns is the root's.
  std::optional<metrics::DeviceReport> report(Reporter& reporter);

  /// At the end, for people: energy by tokens, where it is known. Collective on the world.
  void log_energy(std::int64_t tokens);

 private:
  std::optional<metrics::DeviceReport> gather();
  static std::string text_of(const metrics::SlowDevice& slow);

  const world::World& world_;
  std::vector<std::string> hosts_;  ///< of all ranks, on the root
  std::optional<metrics::DeviceSampler> sampler_;
  std::set<std::pair<int, std::string>> told_;
};

}  // namespace finetune::train
