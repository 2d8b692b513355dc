// SPDX-License-Identifier: Apache-2.0
#include "shard/compute_stream.hpp"

namespace finetune::shard {

void* compute_stream() {
  return nullptr;
}

void wait_for_compute(at::Device) {}

}  // namespace finetune::shard
