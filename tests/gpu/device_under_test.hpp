#pragma once
// SPDX-License-Identifier: Apache-2.0
// The device that the programs of this folder look at: the first GPU of a build with CUDA, or the
// simulated one.

#include <ATen/ATen.h>

#include <string>

namespace finetune::tests::gpu {

/// Whether there is one; makes it current, and libtorch deterministic on it, as a run does.
/// Throws: ErrorKind::environment if there is a GPU that CUDA cannot use.
bool prepare_device();

/// Where prepare_device was true.
at::Device device();

/// "NVIDIA H100 80GB HBM3"; of the simulated device "simulated".
std::string device_name();

}  // namespace finetune::tests::gpu
