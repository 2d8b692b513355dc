#pragma once
// SPDX-License-Identifier: Apache-2.0
// A tensor's elements in host memory, wherever the tensor is: for files and for the optimizer on
// the host.

#include <ATen/ATen.h>

#include <cstddef>
#include <span>

namespace finetune::shard {

/// Host memory that stands for a tensor: its own if it is contiguous on the CPU, else a buffer,
/// pinned for a GPU's tensor so that the copy runs at the speed of the link. Pinned memory that was
/// let go is used again by the next copy.
///
/// Copies are ordered behind what the current CUDA stream holds, and are done when the call
/// returns.
class HostCopy {
 public:
  enum class Contents { wanted, undefined };

  /// `undefined`: the host will write all of it, so nothing is read from the tensor.
  explicit HostCopy(at::Tensor tensor, Contents contents = Contents::wanted);

  std::span<std::byte> bytes() const;
  /// On the CPU, contiguous; shape and dtype of the tensor.
  const at::Tensor& host() const { return host_; }
  bool is_own_memory() const { return host_.is_same(tensor_); }

  /// Copies what the host wrote back to the tensor.
  void write_back();

 private:
  at::Tensor tensor_;
  at::Tensor host_;
};

}  // namespace finetune::shard
