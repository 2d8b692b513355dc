// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_under_test.hpp"

#include <ATen/Context.h>

#include <cstdlib>

#include "comm/device.hpp"
#include "model/device.hpp"

namespace finetune::tests::gpu {

bool prepare_device() {
  if (comm::gpus_to_use(comm::UseOfGpus::automatic, comm::gpu_facts()) == 0) return false;
  // Read by cuBLAS when it starts; deterministic algorithms are refused without it.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  comm::use_gpu(0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  return true;
}

at::Device device() {
  return model::compute_device(0);
}

}  // namespace finetune::tests::gpu
