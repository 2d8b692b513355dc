// SPDX-License-Identifier: Apache-2.0
#include "simulated/device/arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <stdexcept>
#include <system_error>

namespace finetune::simulated {
namespace {

constexpr std::size_t cuda_block_bytes = 512;
constexpr std::size_t device_bytes = std::size_t{64} << 30;

char* map_view(int file, std::size_t size, int protection) {
  void* view = ::mmap(nullptr, size, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (view == MAP_FAILED)
    throw std::system_error(errno, std::generic_category(), "mapping the simulated device");
  return static_cast<char*>(view);
}

}  // namespace

Arena& Arena::here() {
  static Arena* const arena = new Arena(device_bytes, cuda_block_bytes, HostMay::nothing);
  return *arena;
}

Arena::Arena(std::size_t size_bytes, std::size_t block_bytes, HostMay host_may)
    : size_(size_bytes), block_bytes_(block_bytes), free_{{0, size_bytes}} {
  const int file = ::memfd_create("simulated-device", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(size_)) != 0)
    throw std::system_error(errno, std::generic_category(), "memory of the simulated device");
  device_view_ =
      map_view(file, size_, host_may == HostMay::nothing ? PROT_NONE : PROT_READ | PROT_WRITE);
  kernel_view_ = map_view(file, size_, PROT_READ | PROT_WRITE);
  ::close(file);
}

std::size_t Arena::rounded(std::size_t bytes) const {
  return (bytes + block_bytes_ - 1) / block_bytes_ * block_bytes_;
}

void* Arena::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::size_t taken = rounded(bytes);
  std::size_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(free_.begin(), free_.end(),
                                   [&](const auto& range) { return range.second >= taken; });
    if (fits == free_.end()) throw std::bad_alloc();
    offset = fits->first;
    const std::size_t rest = fits->second - taken;
    free_.erase(fits);
    if (rest > 0) free_.emplace(offset + taken, rest);
    live_.emplace(offset, taken);
    bytes_ += static_cast<std::int64_t>(taken);
    peak_bytes_ = std::max(peak_bytes_, bytes_);
  }
  // All bits set is a NaN in every floating-point type: who reads what nobody wrote shows in the
  // loss.
  std::memset(kernel_view_ + offset, 0xff, taken);
  return device_view_ + offset;
}

void Arena::release(void* device_address) noexcept {
  if (device_address == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto live =
      live_.find(static_cast<std::size_t>(static_cast<char*>(device_address) - device_view_));
  if (live == live_.end()) std::abort();  // released twice
  auto [offset, size] = *live;
  live_.erase(live);
  bytes_ -= static_cast<std::int64_t>(size);
  const auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin() && std::prev(after)->first + std::prev(after)->second == offset) {
    std::prev(after)->second += size;
  } else {
    free_.emplace(offset, size);
  }
}

bool Arena::is_device_address(const void* address) const {
  const auto* at = static_cast<const char*>(address);
  return at >= device_view_ && at < device_view_ + size_;
}

bool Arena::is_live_address(const void* address) const {
  if (!is_device_address(address)) return false;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(address) - device_view_);
  const std::lock_guard lock(mutex_);
  const auto after = free_.upper_bound(offset);
  return after == free_.begin() || offset >= std::prev(after)->first + std::prev(after)->second;
}

bool Arena::is_kernel_address(const void* address) const {
  const auto* at = static_cast<const char*>(address);
  return at >= kernel_view_ && at < kernel_view_ + size_;
}

void* Arena::for_kernels(const void* device_address) const {
  if (!is_device_address(device_address))
    throw std::out_of_range("a kernel of the simulated device was given an address of the host");
  return kernel_view_ + (static_cast<const char*>(device_address) - device_view_);
}

std::int64_t Arena::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void Arena::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_bytes_ = bytes_;
}

std::int64_t Arena::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}

}  // namespace finetune::simulated
