#pragma once
// SPDX-License-Identifier: Apache-2.0
// A simulated accelerator for libtorch's CPU build, as its private device type.

#include <ATen/ATen.h>

namespace finetune::simulated {

/// How many devices a process sees: FINETUNE_SIMULATED_GPUS, by default 4.
int num_devices();

/// 10 times its compute capability: FINETUNE_SIMULATED_CAPABILITY, by default 90.
int capability();

/// Makes the private device type usable: allocator, guard, hooks and the name "simulated". Its
/// operations run on the CPU, on memory that nobody else can follow (arena.hpp), before the call
/// returns. Operations on tensors of host and device together throw, as they do with CUDA. Once a
/// process, before the first tensor.
void register_device();

/// The same elements as a tensor of the CPU that shares memory with the device's `tensor`: for
/// kernels of the simulated device.
at::Tensor kernel_view(const at::Tensor& tensor);

}  // namespace finetune::simulated
