// SPDX-License-Identifier: Apache-2.0
#include "shard/device_memory.hpp"

#include <c10/cuda/CUDACachingAllocator.h>

namespace finetune::shard {

PeakBytes peak_device_bytes(at::Device device) {
  if (!device.is_cuda()) return {};
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  // Its figures are by kind of pool; the first is of all.
  return {stats.allocated_bytes[0].peak, stats.reserved_bytes[0].peak};
}

std::int64_t live_device_bytes(at::Device device) {
  if (!device.is_cuda()) return 0;
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).allocated_bytes[0].current;
}

}  // namespace finetune::shard
