#pragma once
// SPDX-License-Identifier: Apache-2.0
// What blocks keep between forward and backward, in the host's memory meanwhile.

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/kept.hpp"

namespace finetune::shard {

/// Of one block and one pass. Where it ends with a copy under way, as after an exception, the
/// computation waits for that.
class OffloadedBlock {
 public:
  explicit OffloadedBlock(at::Device device) : device_(device) {}
  ~OffloadedBlock();
  OffloadedBlock(const OffloadedBlock&) = delete;
  OffloadedBlock& operator=(const OffloadedBlock&) = delete;

  /// Where its ops keep what they do (model::KeepIn).
  model::KeptActivations kept;

 private:
  friend class ActivationOffload;

  /// Bytes of one memory in one piece of the host's.
  struct Part {
    std::size_t memory = 0;
    std::int64_t first = 0;  ///< of the memory's bytes
    at::Tensor host;         ///< uint8, pinned
  };

  at::Device device_;
  std::vector<std::int64_t> sizes_;  ///< bytes, of the memories
  std::vector<Part> parts_;
  std::optional<c10::Event> copied_;  ///< of copies that the computation has not waited for
};

/// Copies between a device's memory and pinned memory of the host, on a stream of their own, so
/// that the computation runs meanwhile. The host waits for nothing. In the order of a block's
/// calls.
class ActivationOffload {
 public:
  explicit ActivationOffload(at::Device device);

  /// Starts to copy what the block keeps to the host.
  void offload(OffloadedBlock& block);
  /// Gives the device's memory of it back; the computation waits for the copies first.
  void drop(OffloadedBlock& block);
  /// Starts to copy it to new memory of the device.
  void bring_back(OffloadedBlock& block);
  /// The computation waits for it. From here on the block's ops alone have its memory.
  void arrive(OffloadedBlock& block);

 private:
  c10::Event copied() const;

  at::Device device_;
  c10::Stream copies_;
};

}  // namespace finetune::shard
