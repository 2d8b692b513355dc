// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/scratch.hpp"

#include <c10/core/Allocator.h>

#include "core/error.hpp"

namespace finetune::kernels {

std::shared_ptr<void> gpu_memory(std::size_t bytes) {
  c10::Allocator* allocator = c10::GetAllocator(c10::kCUDA);
  core::check(allocator != nullptr, "kernels: libtorch has memory of GPUs");
  auto memory = std::make_shared<c10::DataPtr>(allocator->allocate(bytes));
  return {memory, memory->get()};
}

}  // namespace finetune::kernels
