#pragma once
// SPDX-License-Identifier: Apache-2.0
// Host tensors to where a pass is computed.

#include <ATen/ATen.h>

namespace finetune::model {

/// `on_host`, contiguous on the CPU, where `device` is. For a GPU it is staged in pinned memory and
/// copied behind what the current stream holds: the host does not wait. For the CPU it is the same
/// tensor.
at::Tensor upload(const at::Tensor& on_host, at::Device device);

}  // namespace finetune::model
