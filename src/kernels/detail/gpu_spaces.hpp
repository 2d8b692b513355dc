#pragma once
// SPDX-License-Identifier: Apache-2.0
// Kokkos' execution spaces on libtorch's streams. Only for files that are compiled for GPUs.

#include <Kokkos_Core.hpp>

#include "kernels/place.hpp"

namespace finetune::kernels {

using GpuSpace = Kokkos::Cuda;

/// The space of a GPU's place. Kept until Kokkos ends: the end of one waits for the GPU.
/// For several threads. Throws: ErrorKind::bug on the host, and while no GpuKernels are there.
GpuSpace gpu_space(const Place& place);

}  // namespace finetune::kernels
