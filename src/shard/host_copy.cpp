// SPDX-License-Identifier: Apache-2.0
#include "shard/host_copy.hpp"

#include <utility>

#include "model/pinned.hpp"
#include "shard/detail/recorded_event.hpp"

namespace finetune::shard {

HostCopy::HostCopy(at::Tensor tensor, Contents contents) : tensor_(std::move(tensor)) {
  if (tensor_.is_cpu() && tensor_.is_contiguous()) {
    host_ = tensor_;
    return;
  }
  // Pinning needs a device.
  host_ = tensor_.is_cpu() ? at::empty(tensor_.sizes(), tensor_.scalar_type())
                           : model::pinned_empty(tensor_.sizes(), tensor_.scalar_type());
  if (contents == Contents::wanted) host_.copy_(tensor_);
  if (contents == Contents::started) start(host_, tensor_);
}

std::span<std::byte> HostCopy::bytes() const {
  return {static_cast<std::byte*>(host_.data_ptr()), host_.nbytes()};
}

void HostCopy::write_back() {
  if (!is_own_memory()) tensor_.copy_(host_);
}

void HostCopy::write_back(std::int64_t first, std::int64_t count) {
  if (!is_own_memory()) tensor_.narrow(0, first, count).copy_(host_.narrow(0, first, count));
}

void HostCopy::start_write_back() {
  if (!is_own_memory()) start(tensor_, host_);
}

void HostCopy::start(at::Tensor to, const at::Tensor& from) {
  const at::Device device = tensor_.device();
  to.copy_(from, !device.is_cpu());
  if (device.is_cpu()) return;
  done_.emplace(recorded_event(device, c10::EventFlag::PYTORCH_DEFAULT));
}

void HostCopy::wait() {
  if (done_ && !done_->query()) done_->synchronize();
  done_.reset();
}

}  // namespace finetune::shard
