#pragma once
// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's management library (NVML) reports about the GPUs of this node. The library is
// looked for when the program runs: nodes without GPUs have none.

#include <string>
#include <vector>

#include "preflight/detail/facts.hpp"

namespace finetune::preflight {

struct NvmlAnswer {
  bool has_library = false;
  std::vector<Gpu> gpus;
};

/// All GPUs that NVML shows; none without it. To be asked before this job's processes use them, so
/// that any process computing on one is foreign. Calls no CUDA.
NvmlAnswer ask_nvml();

}  // namespace finetune::preflight
