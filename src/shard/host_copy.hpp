#pragma once
// SPDX-License-Identifier: Apache-2.0
// A tensor's elements in host memory, wherever the tensor is: for files and for the optimizer on
// the host.

#include <ATen/ATen.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace finetune::shard {

/// Host memory that stands for a tensor: its own if it is contiguous on the CPU, else a buffer,
/// pinned for a GPU's tensor so that the copy runs at the speed of the link. Pinned memory that was
/// let go is used again by the next copy.
///
/// Copies are ordered behind what the device's current stream holds, and are done when the call
/// returns, but for those that are only started.
class HostCopy {
 public:
  /// `started`: the copy is done after `wait`. `undefined`: the host will write all of it, so
  /// nothing is read from the tensor.
  enum class Contents { wanted, started, undefined };

  explicit HostCopy(at::Tensor tensor, Contents contents = Contents::wanted);

  std::span<std::byte> bytes() const;
  /// On the CPU, contiguous; shape and dtype of the tensor.
  const at::Tensor& host() const { return host_; }
  bool is_own_memory() const { return host_.is_same(tensor_); }

  /// Copies what the host wrote back to the tensor: all of it, or of a tensor [N] `count` elements
  /// from `first` on.
  void write_back();
  void write_back(std::int64_t first, std::int64_t count);
  /// The same, done after `wait`: until then nobody writes to the host's memory.
  void start_write_back();
  /// Returns when the copy that was started last is done.
  void wait();

 private:
  void start(at::Tensor to, const at::Tensor& from);

  at::Tensor tensor_;
  at::Tensor host_;
  std::optional<c10::Event> done_;  ///< of a copy that was started
};

}  // namespace finetune::shard
