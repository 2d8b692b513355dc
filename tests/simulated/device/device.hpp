#pragma once
// SPDX-License-Identifier: Apache-2.0
// A simulated accelerator for libtorch's CPU build, as its private device type.

#include <ATen/ATen.h>

#include "simulated/device/order.hpp"

namespace finetune::simulated {

/// How many devices a process sees: FINETUNE_SIMULATED_GPUS, by default 4.
int num_devices();

/// Bytes that its device can still give to tensors of this process, whatever the plan was told:
/// FINETUNE_SIMULATED_LEFT_KIB; by default all. As if another process had taken the rest.
std::int64_t bytes_left();
/// The same of host memory that can be pinned: FINETUNE_SIMULATED_PINNED_KIB.
std::int64_t pinned_bytes_left();

/// 10 times its compute capability: FINETUNE_SIMULATED_CAPABILITY, by default 90.
int capability();

/// Makes the private device type usable: allocator, guard, hooks and the name "simulated". Its
/// operations run on the CPU, on memory that nobody else can follow (arena.hpp). Operations on
/// tensors of host and device together throw, as they do with CUDA. Once a process, before the
/// first tensor.
///
/// Operations of one stream come one after the other, so that when they run shows only where
/// another stream or the host looks. There everything is as late as it may be: pinned memory is the
/// host's again (pinned.hpp), and collectives have arrived (communication.hpp), when somebody has
/// waited, and not before.
void register_device();

/// The same elements as a tensor of the CPU that shares memory with `tensor`, which is the device's
/// or pinned: for kernels of the simulated device, within an Operation that touches them.
at::Tensor kernel_view(const at::Tensor& tensor, Touch touch);

}  // namespace finetune::simulated
