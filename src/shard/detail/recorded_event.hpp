#pragma once
// SPDX-License-Identifier: Apache-2.0
// Events of the stream that computes, on any device of libtorch.

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace finetune::shard {

/// Past when the device has done what its current stream holds now.
inline c10::Event recorded_event(at::Device device, c10::EventFlag flag) {
  c10::Event event(device.type(), flag);
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

}  // namespace finetune::shard
