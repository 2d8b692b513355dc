#pragma once
// SPDX-License-Identifier: Apache-2.0
// How long a part of the computation takes, without waiting for it.

#include <ATen/ATen.h>
#include <c10/core/Event.h>

#include <optional>

#include "core/clock.hpp"

namespace finetune::shard {

/// Times what is done between `begin` and `end`: on the CPU by the host's clock, on a device by
/// events of its current stream, which are read when they are past.
class ComputeTimer {
 public:
  explicit ComputeTimer(at::Device device) : device_(device) {}

  void begin();
  void end();

  /// Of the last stretch that is known to be over, 0 before the first. The host does not wait.
  double seconds();

 private:
  at::Device device_;
  core::Stopwatch watch_;
  std::optional<c10::Event> begin_, end_;  ///< of a stretch that nobody has read
  double seconds_ = 0;
};

}  // namespace finetune::shard
