// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "unit/comm/group_memory.hpp"

namespace finetune::tests {

DeviceBytes make_device_bytes(std::size_t count) {
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, count), cudaSuccess);
  return {static_cast<std::byte*>(data), [](std::byte* bytes) { cudaFree(bytes); }};
}

void copy_to_device(const DeviceBytes& to, std::span<const std::byte> from) {
  EXPECT_EQ(cudaMemcpyAsync(to.get(), from.data(), from.size(), cudaMemcpyHostToDevice,
                            static_cast<cudaStream_t>(compute_stream())),
            cudaSuccess);
}

void copy_to_host(std::span<std::byte> to, const DeviceBytes& from) {
  auto* stream = static_cast<cudaStream_t>(compute_stream());
  EXPECT_EQ(cudaMemcpyAsync(to.data(), from.get(), to.size(), cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
}

void* compute_stream() {
  static cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), cudaSuccess);
    return made;
  }();
  return stream;
}

}  // namespace finetune::tests
