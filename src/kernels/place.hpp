#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where a kernel computes: on the threads of the host, or on a GPU.

namespace finetune::kernels {

/// Where the memory of a kernel's arguments lies. A kernel computes where its memory is, whatever
/// else this rank uses: on a rank with a GPU, what is offloaded is computed by the host.
///
/// Kernels that take no place have all their arguments in the host's memory.
class Place {
 public:
  /// The host. Kernels have computed when they return.
  Place() = default;

  /// The GPU of GpuKernels, in the order of `stream`, a cudaStream_t (null is CUDA's default
  /// stream). Kernels return before they have computed, and look at no argument's values. Must be
  /// libtorch's current stream: intermediate results lie in memory of its allocator.
  static Place gpu(void* stream) { return Place(stream); }

  bool is_gpu() const { return is_gpu_; }
  void* stream() const { return stream_; }

 private:
  explicit Place(void* stream) : is_gpu_(true), stream_(stream) {}

  bool is_gpu_ = false;
  void* stream_ = nullptr;
};

}  // namespace finetune::kernels
