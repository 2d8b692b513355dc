#pragma once
// SPDX-License-Identifier: Apache-2.0
// Looks at this rank's device again and again, by a thread of its own.

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/nvml.hpp"
#include "metrics/device_use.hpp"

namespace finetune::metrics {

/// What is looked at.
struct SampledDevice {
  std::string gpu_uuid = {};         ///< as comm::Device has it; empty: this rank has no GPU
  bool tells_of_node = false;        ///< this rank also reads the energy of its node's processors
  std::filesystem::path root = "/";  ///< holds sys/; another is for tests
  std::string nvml = core::Nvml::usual_library;  ///< likewise
};

/// A sample takes well under a millisecond of a core, but for the traffic on PCIe, which NVML
/// watches for 20 ms each way, asleep. Thread-safe. Without NVML, or with one that lacks a
/// function, values are missing, and nothing else.
class DeviceSampler {
 public:
  /// `interval_s` between two samples; 0: no thread, whoever has this calls `sample`.
  DeviceSampler(const SampledDevice& device, double interval_s);
  ~DeviceSampler();
  DeviceSampler(const DeviceSampler&) = delete;
  DeviceSampler& operator=(const DeviceSampler&) = delete;

  /// Looks once; `seconds` passed since the last time. For whoever has no thread.
  void sample(double seconds);

  /// Means since the last call, and sums since the first sample.
  DeviceUse take();

 private:
  class Looker;
  class Sums;

  void run(double interval_s);

  std::unique_ptr<Looker> looker_;  ///< the thread's, where there is one
  std::mutex mutex_;                ///< of what follows
  std::unique_ptr<Sums> sums_;
  std::condition_variable wake_;
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace finetune::metrics
