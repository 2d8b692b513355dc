// SPDX-License-Identifier: Apache-2.0
#include "core/nvml.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace finetune::core {

Nvml::Nvml(const char* library) : handle_(::dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr && call<int (*)()>("nvmlInit_v2") != 0) {
    ::dlclose(handle_);
    handle_ = nullptr;
  }
}

Nvml::~Nvml() {
  if (handle_ == nullptr) return;
  call<int (*)()>("nvmlShutdown");
  ::dlclose(handle_);
}

void* Nvml::find(const char* name) const {
  return handle_ == nullptr ? nullptr : ::dlsym(handle_, name);
}

std::string Nvml::text_of(const char* function, Device device) const {
  std::array<char, 128> text{};
  call<int (*)(Device, char*, unsigned)>(function, device, text.data(),
                                         static_cast<unsigned>(text.size() - 1));
  return text.data();
}

std::int64_t Nvml::number_of(const char* function, Device device) const {
  unsigned value = 0;
  return call<int (*)(Device, unsigned*)>(function, device, &value) == 0
             ? static_cast<std::int64_t>(value)
             : -1;
}

int Nvml::num_devices() const {
  unsigned count = 0;
  return call<int (*)(unsigned*)>("nvmlDeviceGetCount_v2", &count) == 0 ? static_cast<int>(count)
                                                                        : 0;
}

int Nvml::open(unsigned index, Device& device) const {
  return call<int (*)(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2", index, &device);
}

std::uint64_t Nvml::slow_bits(Device device) const {
  using Function = int (*)(Device, unsigned long long*);
  unsigned long long bits = 0;
  // The second is the name that drivers of before 2023 know.
  for (const char* name :
       {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"})
    if (call<Function>(name, device, &bits) == 0) return bits;
  return 0;
}

std::optional<Nvml::Memory> Nvml::memory(Device device) const {
  Memory memory{};
  if (call<int (*)(Device, Memory*)>("nvmlDeviceGetMemoryInfo", device, &memory) != 0) return {};
  return memory;
}

std::int64_t Nvml::memory_errors(Device device, Errors kind) const {
  constexpr int since_driver_start = 0;
  unsigned long long errors = 0;
  return call<int (*)(Device, int, int, unsigned long long*)>("nvmlDeviceGetTotalEccErrors", device,
                                                              static_cast<int>(kind),
                                                              since_driver_start, &errors) == 0
             ? static_cast<std::int64_t>(errors)
             : -1;
}

SlowReasons slow_reasons(std::uint64_t bits) {
  struct Reason {
    std::uint64_t bit;
    const char* words;
    bool is_of_hardware;
  };
  // That nothing runs, that clocks follow a setting or another GPU, is no trouble.
  constexpr std::array<Reason, 5> reasons = {{{0x4, "power cap", false},
                                              {0x8, "hardware slowdown", true},
                                              {0x20, "heat (software)", false},
                                              {0x40, "heat (hardware)", true},
                                              {0x80, "power brake", true}}};
  SlowReasons found;
  for (const Reason& reason : reasons)
    if ((bits & reason.bit) != 0)
      (reason.is_of_hardware ? found.by_hardware : found.by_limits).emplace_back(reason.words);
  return found;
}

std::string lost_by(int nvml_error) {
  constexpr int no_permission = 4, not_found = 6;
  switch (nvml_error) {
    case no_permission:
    case not_found:
      return "";
    case 8:
      return "lacks power: its cables";
    case 11:
      return "gives no interrupts";
    case 15:
      return "has fallen off the bus";
    case 16:
      return "needs a reset";
    default:
      return fmt::format("does not answer (NVML error {})", nvml_error);
  }
}

}  // namespace finetune::core
