// SPDX-License-Identifier: Apache-2.0
#include "shard/compute_stream.hpp"

#include <c10/cuda/CUDAStream.h>

namespace finetune::shard {

void* compute_stream() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

void wait_for_compute(at::Device device) {
  if (device.is_cuda()) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
}

}  // namespace finetune::shard
