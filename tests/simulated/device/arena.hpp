#pragma once
// SPDX-License-Identifier: Apache-2.0
// Memory of the simulated device: addresses that the host must not follow.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

namespace finetune::simulated {

/// One range of memory that is mapped twice. Tensors hold addresses of a view that nobody may read
/// or write, so that the host faults at once where it takes a device's pointer for its own; what
/// stands for the device's kernels uses the other view. Fresh memory holds NaNs.
///
/// For several threads. Never freed: tensors may live as long as the program.
class Arena {
 public:
  /// What the host may do with the view that is not the kernels'.
  enum class HostMay { nothing, read_and_write };

  /// Takes no memory but what is used. Blocks are multiples of `block_bytes`.
  Arena(std::size_t size_bytes, std::size_t block_bytes, HostMay host_may);
  /// The device's of this process; blocks of 512 bytes, as CUDA's caching allocator has them.
  static Arena& here();

  /// An address for the device; null for 0 bytes. Throws: std::bad_alloc if the range is full.
  void* allocate(std::size_t bytes);
  /// What it takes for so many bytes.
  std::size_t rounded(std::size_t bytes) const;
  void release(void* device_address) noexcept;

  bool is_device_address(const void* address) const;
  /// Of memory that was allocated and not released.
  bool is_live_address(const void* address) const;
  bool is_kernel_address(const void* address) const;
  /// Where kernels find what is at this address. Throws: std::out_of_range if it is none of the
  /// device's.
  void* for_kernels(const void* device_address) const;

  /// Bytes of live blocks: now, and the most there were at one time since the last reset.
  std::int64_t bytes() const;
  std::int64_t peak_bytes() const;
  void reset_peak();
  std::size_t size_bytes() const { return size_; }

 private:
  std::size_t size_ = 0;
  std::size_t block_bytes_ = 0;
  char* device_view_ = nullptr;
  char* kernel_view_ = nullptr;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;            ///< offset -> bytes, neighbours joined
  std::unordered_map<std::size_t, std::size_t> live_;  ///< offset -> bytes
  std::int64_t bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

}  // namespace finetune::simulated
