// SPDX-License-Identifier: Apache-2.0
// What device.hpp asks of CUDA.
#include <fmt/format.h>

#include "comm/device.hpp"
#include "comm/nccl/detail/cuda.hpp"
#include "core/build_info.hpp"

namespace finetune::comm {

namespace {

// detail/cuda_errors.cpp names them by number.
static_assert(cudaErrorMemoryAllocation == 2 && cudaErrorInsufficientDriver == 35 &&
              cudaErrorNoKernelImageForDevice == 209 && cudaErrorECCUncorrectable == 214 &&
              cudaErrorIllegalAddress == 700 && cudaErrorHardwareStackError == 714 &&
              cudaErrorLaunchFailure == 719 && cudaErrorUnknown == 999);

/// 13000 -> "13.0".
std::string cuda_version(int number) {
  return number <= 0 ? "" : fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

}  // namespace

CudaState cuda_state() {
  CudaState state{.is_built = true, .built_for = core::libtorch_cuda()};
  int driver = 0;
  // 0 without a driver, which is no error.
  if (cudaDriverGetVersion(&driver) == cudaSuccess) state.driver_for = cuda_version(driver);
  const cudaError_t code = cudaGetDeviceCount(&state.usable);
  if (code == cudaSuccess) return state;
  // The same binary runs on machines without a GPU, where the driver's library is missing as well.
  cudaGetLastError();  // forgets the error, or the next check would report it
  state.usable = 0;
  state.problem = cudaGetErrorString(code);
  return state;
}

GpuName gpu_name(int device) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::string uuid = "GPU-";
  for (int i = 0; i < 16; ++i) {
    // Dashes after bytes 4, 6, 8 and 10, as in every UUID (RFC 9562).
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    uuid += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  return {uuid, fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
                            properties.pciDeviceID)};
}

std::int64_t free_gpu_bytes() {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return static_cast<std::int64_t>(free_bytes);
}

void use_gpu(int device) {
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
}

}  // namespace finetune::comm
