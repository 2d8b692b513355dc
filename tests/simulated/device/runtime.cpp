// SPDX-License-Identifier: Apache-2.0
// What libtorch asks of a device besides operations: memory, streams, events, hooks.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "simulated/device/arena.hpp"
#include "simulated/device/device.hpp"
#include "simulated/device/pinned.hpp"
#include "simulated/device/streams.hpp"

namespace finetune::simulated {
namespace {

thread_local c10::DeviceIndex device_of_thread = 0;

int setting_or(const char* setting, int usual) {
  const char* text = std::getenv(setting);
  return text == nullptr ? usual : std::atoi(text);
}

/// Device memory.
class DeviceAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const std::int64_t wanted = Arena::here().bytes() + static_cast<std::int64_t>(bytes);
    // In the words of CUDA's.
    TORCH_CHECK_WITH(OutOfMemoryError, wanted <= bytes_left(),
                     "CUDA out of memory. Tried to allocate ", bytes, " bytes. GPU ",
                     static_cast<int>(device_of_thread), " has a total capacity of ", bytes_left(),
                     " bytes. If reserved but unallocated memory is large try something.");
    void* address = Arena::here().allocate(bytes);
    if (address != nullptr)
      Order::here().allocated(address, Arena::here().rounded(bytes), current_stream());
    return {address, address, &release, c10::Device(c10::kPrivateUse1, device_of_thread)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    if (bytes == 0) return;
    const Operation operation("a copy of storage");
    operation.touches(from, bytes, Touch::reads, "storage");
    operation.touches(to, bytes, Touch::writes, "storage");
    std::memcpy(Arena::here().for_kernels(to), Arena::here().for_kernels(from), bytes);
  }

 private:
  static void release(void* address) {
    Order::here().freed(address);
    Arena::here().release(address);
  }
};

/// Pinned host memory.
class PinnedAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    // In the words of CUDA's, which blame nobody.
    TORCH_CHECK(static_cast<std::int64_t>(bytes) <= pinned_bytes_left(),
                "CUDA error: out of memory\nCUDA kernel errors might be reported later");
    void* address = PinnedMemory::here().allocate(bytes);
    return {address, address, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void release(void* address) { PinnedMemory::here().release(address); }
};

/// When it was recorded, and what is done when it is past.
struct Event {
  std::chrono::steady_clock::time_point time;
  Clock done;
};

/// An event is past when the host has waited for it, or for something behind it.
struct Guard : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::kPrivateUse1;
  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    device_of_thread = device.index() < 0 ? device_of_thread : device.index();
    return before;
  }
  c10::Device getDevice() const override { return {static_type, device_of_thread}; }
  void setDevice(c10::Device device) const override { exchangeDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { exchangeDevice(device); }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current_stream());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, new_stream());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::UNSAFE, stream.device(), exchange_stream(number_of(stream)));
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(num_devices());
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event();
    *as_event(*event) = {std::chrono::steady_clock::now(), Order::here().event(number_of(stream))};
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete as_event(event);
  }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    const auto elapsed = as_event(end)->time - as_event(begin)->time;
    return std::chrono::duration<double, std::milli>(elapsed).count();
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!is_dropped("block")) Order::here().stream_waits(number_of(stream), as_event(event)->done);
  }
  bool queryEvent(void* event) const override {
    return Order::here().host_knows(as_event(event)->done);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return Order::here().host_knows(Order::here().event(number_of(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (!is_dropped("stream")) host_waits_for("synchronizeStream", number_of(stream));
  }
  void synchronizeEvent(void* event) const override {
    if (!is_dropped("event")) host_waits("synchronizeEvent", as_event(event)->done);
  }
  void synchronizeDevice(c10::DeviceIndex) const override {
    Clock all = Order::here().event(default_stream);
    all.merge(Order::here().event(communication_stream));
    host_waits("synchronizeDevice", all);
  }

 private:
  static Event* as_event(void* event) { return static_cast<Event*>(event); }
  static Stream number_of(const c10::Stream& stream) { return static_cast<Stream>(stream.id()); }
};

struct Hooks : at::PrivateUse1HooksInterface {
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return device == device_of_thread;
  }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(num_devices());
  }
  c10::DeviceIndex getCurrentDevice() const override { return device_of_thread; }
  bool isPinnedPtr(const void* data) const override { return PinnedMemory::here().holds(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto* const allocator = new PinnedAllocator();
    return allocator;
  }
  at::Device getDeviceFromPtr(void*) const override { return {at::kPrivateUse1, device_of_thread}; }
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
  return setting_or("FINETUNE_SIMULATED_GPUS", 4);
}

std::int64_t bytes_left() {
  static const int kib = setting_or("FINETUNE_SIMULATED_LEFT_KIB", std::numeric_limits<int>::max());
  return std::int64_t{kib} << 10;
}

std::int64_t pinned_bytes_left() {
  static const int kib =
      setting_or("FINETUNE_SIMULATED_PINNED_KIB", std::numeric_limits<int>::max());
  return std::int64_t{kib} << 10;
}

int capability() {
  return setting_or("FINETUNE_SIMULATED_CAPABILITY", 90);
}

void register_device() {
  c10::register_privateuse1_backend("simulated");
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  static auto* const allocator = new DeviceAllocator();
  c10::SetAllocator(c10::kPrivateUse1, allocator);
  explain_faults();
}

}  // namespace finetune::simulated
