// SPDX-License-Identifier: Apache-2.0
#include "shard/host_copy.hpp"

#include <utility>

namespace finetune::shard {

HostCopy::HostCopy(at::Tensor tensor, Contents contents) : tensor_(std::move(tensor)) {
  if (tensor_.is_cpu() && tensor_.is_contiguous()) {
    host_ = tensor_;
    return;
  }
  const bool is_pinned = tensor_.is_cuda();  // pinning needs a device
  host_ = at::empty(
      tensor_.sizes(),
      at::TensorOptions().dtype(tensor_.scalar_type()).device(at::kCPU).pinned_memory(is_pinned));
  if (contents == Contents::wanted) host_.copy_(tensor_);
}

std::span<std::byte> HostCopy::bytes() const {
  return {static_cast<std::byte*>(host_.data_ptr()), host_.nbytes()};
}

void HostCopy::write_back() {
  if (!is_own_memory()) tensor_.copy_(host_);
}

}  // namespace finetune::shard
