#pragma once
// SPDX-License-Identifier: Apache-2.0
// Runs a kernel's functor over a range: on torch's intra-op threads, or on Kokkos' device.

#include <ATen/Parallel.h>
#include <Kokkos_Macros.hpp>

#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP) || defined(KOKKOS_ENABLE_SYCL)
#define FINETUNE_KOKKOS_DEVICE
#include <Kokkos_Core.hpp>
#endif

#include <algorithm>
#include <cstdint>
#include <memory>

#include "kernels/element.hpp"

namespace finetune::kernels {

/// Whether launches go to a device: a device Kokkos that this rank has initialised. A rank that
/// computes on the CPU does not initialise Kokkos, so one binary serves both kinds.
inline bool on_device() {
#ifdef FINETUNE_KOKKOS_DEVICE
  return Kokkos::is_initialized();
#else
  return false;
#endif
}

/// Calls `functor(first, last)` for pieces that together make [begin, end), concurrently.
///
/// On the host a piece starts at a multiple of `grain` after `begin`, whatever the number of
/// threads, and work of a single grain stays on the calling thread. On a device each piece is one
/// index; the call returns before the work is done.
template <class Functor>
void launch(std::int64_t begin, std::int64_t end, std::int64_t grain, const Functor& functor) {
  if (begin >= end) return;
#ifdef FINETUNE_KOKKOS_DEVICE
  if (on_device()) {
    Kokkos::parallel_for(
        Kokkos::RangePolicy<Kokkos::DefaultExecutionSpace, Kokkos::IndexType<std::int64_t>>(begin,
                                                                                            end),
        KOKKOS_LAMBDA(std::int64_t i) { functor(i, i + 1); });
    return;
  }
#endif
  const std::int64_t num_grains = (end - begin + grain - 1) / grain;
  at::parallel_for(0, num_grains, 1, [&](std::int64_t first, std::int64_t last) {
    // A copy on this thread's stack: nothing else writes to it, so its members stay in registers.
    const Functor local = functor;
    local(begin + first * grain, std::min(end, begin + last * grain));
  });
}

/// The grain of a launch over rows of `row_size` elements.
inline std::int64_t grain_rows(std::int64_t row_size) {
  return std::max<std::int64_t>(1, grain_elements / std::max<std::int64_t>(1, row_size));
}

/// Uninitialised memory for intermediate results that kernels write and the host may read.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t count) {
#ifdef FINETUNE_KOKKOS_DEVICE
    if (on_device()) {
      shared_ = static_cast<T*>(Kokkos::kokkos_malloc<Kokkos::SharedSpace>(count * sizeof(T)));
      return;
    }
#endif
    host_ = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(count));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
#ifdef FINETUNE_KOKKOS_DEVICE
    if (shared_ == nullptr) return;
    Kokkos::fence();
    Kokkos::kokkos_free<Kokkos::SharedSpace>(shared_);
#endif
  }

  T* data() const {
    return shared_ != nullptr ? shared_ : host_.get();
  }

  /// Waits for kernels that write to it; then the host may read.
  const T* wait() const {
#ifdef FINETUNE_KOKKOS_DEVICE
    if (shared_ != nullptr) Kokkos::fence();
#endif
    return data();
  }

 private:
  std::unique_ptr<T[]> host_;
  T* shared_ = nullptr;
};

}  // namespace finetune::kernels
