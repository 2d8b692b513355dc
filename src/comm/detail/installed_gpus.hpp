#pragma once
// SPDX-License-Identifier: Apache-2.0
// GPUs that this machine has, whether or not CUDA can use them.

#include <filesystem>
#include <string>

namespace finetune::comm {

struct InstalledGpus {
  int count = 0;
  std::string driver;  ///< "535.129.03"; empty: none is loaded
};

/// What the driver of NVIDIA shows below `root`: its devices in dev/, its version in proc/.
InstalledGpus installed_gpus(const std::filesystem::path& root = "/");

}  // namespace finetune::comm
