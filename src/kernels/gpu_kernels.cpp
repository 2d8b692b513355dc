// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu_kernels.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>

#include "core/error.hpp"
#include "kernels/detail/kokkos_runtime.hpp"

// Of CMake: Kokkos' version, and FINETUNE_KOKKOS_HAS_CUDA.
#define FINETUNE_TEXT_OF(x) #x
#define FINETUNE_TEXT(x) FINETUNE_TEXT_OF(x)

namespace finetune::kernels {

#ifdef FINETUNE_KOKKOS_HAS_CUDA

GpuKernels::GpuKernels(int index) : has_started_(index >= 0 && start_kokkos(index)) {}

GpuKernels::~GpuKernels() {
  if (has_started_ && std::uncaught_exceptions() == 0) end_kokkos();
}

bool compute_on(c10::Device device) {
  return device.is_cpu() || (device.is_cuda() && is_kokkos_running());
}

bool has_kernels_for_gpus() {
  return true;
}

std::string who_computes_on_gpus() {
  return "kernels by Kokkos " FINETUNE_TEXT(FINETUNE_KOKKOS_VERSION) " with CUDA";
}

#else

GpuKernels::GpuKernels(int) {}
GpuKernels::~GpuKernels() {}

bool compute_on(c10::Device device) {
  return device.is_cpu();
}

bool has_kernels_for_gpus() {
  return false;
}

std::string who_computes_on_gpus() {
  return "libtorch's operations in place of kernels (this build's Kokkos, " FINETUNE_TEXT(
      FINETUNE_KOKKOS_VERSION) ", has no CUDA)";
}

#endif

Place place_on(c10::Device device) {
  core::check(compute_on(device), "kernels: compute on the host and on this rank's GPU");
  if (device.is_cpu()) return {};
  return Place::gpu(c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle());
}

}  // namespace finetune::kernels
