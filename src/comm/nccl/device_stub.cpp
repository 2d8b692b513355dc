// SPDX-License-Identifier: Apache-2.0
// What device.hpp asks of CUDA, in a build without it.
#include "comm/device.hpp"
#include "core/error.hpp"

namespace finetune::comm {
namespace {

[[noreturn]] void fail_without_cuda() {
  core::fail(core::ErrorKind::environment,
             {"GPU", "this program was built without CUDA", "it computes on CPUs only",
              "Build it with -DFINETUNE_WITH_CUDA=ON."});
}

}  // namespace

CudaState cuda_state() {
  return {};
}

std::int64_t free_gpu_bytes() {
  return 0;
}

GpuName gpu_name(int) {
  fail_without_cuda();
}

void use_gpu(int) {
  fail_without_cuda();
}

}  // namespace finetune::comm
