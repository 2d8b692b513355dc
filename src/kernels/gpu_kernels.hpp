#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether kernels compute on this rank's GPU, or compositions of libtorch's operations.

#include <c10/core/Device.h>

#include <string>

#include "kernels/place.hpp"

namespace finetune::kernels {

/// While one lives, kernels compute on the GPU `index`, which this rank has chosen before: Kokkos
/// is initialised. Nothing for an index below 0, in a build whose Kokkos has no CUDA, and for all
/// but the first of a process. Its end, before MPI's and CUDA's, waits for the GPU; not while an
/// exception is on its way, as what the GPU waits for may never come.
/// Throws: ErrorKind::environment if Kokkos does not start there.
class GpuKernels {
 public:
  explicit GpuKernels(int index);
  GpuKernels(const GpuKernels&) = delete;
  GpuKernels& operator=(const GpuKernels&) = delete;
  ~GpuKernels();

 private:
  bool has_started_ = false;
};

/// The one place that chooses: whether kernels that take a place may be called for memory of this
/// device. If not, their compositions are.
bool compute_on(c10::Device device);

/// Whether they would be called on the GPUs of a run: what plans know where there are none.
bool has_kernels_for_gpus();

/// What this build can do, and why: of a line in the log.
std::string who_computes_on_gpus();

/// Of memory on `device`: the host, or libtorch's current stream there.
/// Throws: ErrorKind::bug if kernels do not compute there.
Place place_on(c10::Device device);

}  // namespace finetune::kernels
