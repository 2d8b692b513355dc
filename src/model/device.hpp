#pragma once
// SPDX-License-Identifier: Apache-2.0
// libtorch's name of the device that a rank computes on.

#include <ATen/ATen.h>

namespace finetune::model {

/// The GPU of this index (comm::Device::index), or for -1 the CPU. The one place that says what
/// kind of device a GPU is to libtorch: tests put a simulated one in its place.
at::Device compute_device(int index);

/// 90 for compute capability 9.0; 0 for the CPU. Asked of the driver once per device.
int compute_capability(at::Device device);

}  // namespace finetune::model
