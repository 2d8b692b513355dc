#pragma once
// SPDX-License-Identifier: Apache-2.0
// GPUs that this machine has, whether or not CUDA can use them.

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace finetune::comm {

struct InstalledGpus {
  std::vector<std::filesystem::path> devices;  ///< /dev/nvidia0, ...
  std::string driver;                          ///< "535.129.03"; empty: none is loaded
};

/// What the driver of NVIDIA shows below `root`: its devices in dev/, its version in proc/.
InstalledGpus installed_gpus(const std::filesystem::path& root = "/");

/// Who may use them.
struct OpenGpus {
  int denied = 0;  ///< by permissions or by the scheduler's device cgroup: not this job's
  std::vector<std::string> broken = {};  ///< "/dev/nvidia2: Input/output error"
};

/// Opens each of `devices` and closes it again. `open` returns 0 or errno; another than the
/// system's is for tests.
OpenGpus open_gpus(std::span<const std::filesystem::path> devices,
                   const std::function<int(const std::filesystem::path&)>& open);
OpenGpus open_gpus(std::span<const std::filesystem::path> devices);

}  // namespace finetune::comm
