// SPDX-License-Identifier: Apache-2.0
// What libtorch asks of a device besides operations: memory, streams, events, hooks.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>

#include "simulated/device/arena.hpp"
#include "simulated/device/counters.hpp"
#include "simulated/device/device.hpp"

namespace finetune::simulated {
namespace {

thread_local c10::DeviceIndex current = 0;

int number_of(const char* setting, int usual) {
  const char* text = std::getenv(setting);
  return text == nullptr ? usual : std::atoi(text);
}

/// Device memory.
class DeviceAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* address = Arena::here().allocate(bytes);
    return {address, address, &release, c10::Device(c10::kPrivateUse1, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    if (bytes == 0) return;
    std::memcpy(Arena::here().for_kernels(to), Arena::here().for_kernels(from), bytes);
  }

 private:
  static void release(void* address) { Arena::here().release(address); }
};

/// Host memory that is remembered as pinned.
class PinnedAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* address = bytes == 0 ? nullptr : std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (bytes > 0 && address == nullptr) throw std::bad_alloc();
    const std::lock_guard lock(mutex());
    if (address != nullptr) blocks()[address] = bytes;
    return {address, address, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  static bool holds(const void* data) {
    const std::lock_guard lock(mutex());
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    for (const auto& [start, bytes] : blocks()) {
      const auto first = reinterpret_cast<std::uintptr_t>(start);
      if (at >= first && at < first + bytes) return true;
    }
    return false;
  }

 private:
  static void release(void* address) {
    const std::lock_guard lock(mutex());
    blocks().erase(address);
    std::free(address);
  }
  static std::mutex& mutex() {
    static auto* const one = new std::mutex();
    return *one;
  }
  static std::unordered_map<void*, std::size_t>& blocks() {
    static auto* const all = new std::unordered_map<void*, std::size_t>();
    return *all;
  }
};

/// Everything that was started is done, so streams and events have nothing to wait for.
struct Guard : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::kPrivateUse1;
  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    current = device.index() < 0 ? current : device.index();
    return before;
  }
  c10::Device getDevice() const override { return {static_type, current}; }
  void setDevice(c10::Device device) const override { exchangeDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { exchangeDevice(device); }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return getStream(stream.device());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(num_devices());
  }
  /// An event is the time at which it was recorded.
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    using Clock = std::chrono::steady_clock;
    if (*event == nullptr) *event = new Clock::time_point();
    *static_cast<Clock::time_point*>(*event) = Clock::now();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<std::chrono::steady_clock::time_point*>(event);
  }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    using Clock = std::chrono::steady_clock;
    const auto elapsed =
        *static_cast<Clock::time_point*>(end) - *static_cast<Clock::time_point*>(begin);
    return std::chrono::duration<double, std::milli>(elapsed).count();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {
    Counters::here().sync("synchronizeStream");
  }
  void synchronizeEvent(void*) const override { Counters::here().sync("synchronizeEvent"); }
  void synchronizeDevice(c10::DeviceIndex) const override {
    Counters::here().sync("synchronizeDevice");
  }
};

struct Hooks : at::PrivateUse1HooksInterface {
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex device) const override { return device == current; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(num_devices());
  }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::holds(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto* const allocator = new PinnedAllocator();
    return allocator;
  }
  at::Device getDeviceFromPtr(void*) const override { return {at::kPrivateUse1, current}; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    c10::DataPtr memory = c10::GetAllocator(c10::kPrivateUse1)->allocate(bytes);
    const std::size_t kept = std::min(bytes, storage.nbytes());
    c10::GetAllocator(c10::kPrivateUse1)->copy_data(memory.get(), storage.data(), kept);
    storage.set_data_ptr_noswap(std::move(memory));
    storage.set_nbytes(bytes);
  }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

int num_devices() {
  return number_of("FINETUNE_SIMULATED_GPUS", 4);
}

int capability() {
  return number_of("FINETUNE_SIMULATED_CAPABILITY", 90);
}

void register_device() {
  c10::register_privateuse1_backend("simulated");
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  static auto* const allocator = new DeviceAllocator();
  c10::SetAllocator(c10::kPrivateUse1, allocator);
}

}  // namespace finetune::simulated
