#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tables of constants where tensors are computed.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace finetune::kernels::composed {

/// `values` [N], fp32, int64 or bytes, on the device of `like`. They live as long as the program
/// and never change: what was copied to a device once is used again, so that later calls neither
/// copy nor wait. For several threads.
at::Tensor constant_on_device_of(const at::Tensor& like, std::span<const float> values);
at::Tensor constant_on_device_of(const at::Tensor& like, std::span<const std::int64_t> values);
at::Tensor constant_on_device_of(const at::Tensor& like, std::span<const std::byte> values);

}  // namespace finetune::kernels::composed
