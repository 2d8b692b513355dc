// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/gpus.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

namespace finetune::preflight {
namespace {

// The part of NVML's interface that is used, as its documentation gives it (NVML API reference,
// NVIDIA): every function returns 0 if it could do what was asked.
using Device = void*;
struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
constexpr int clock_of_multiprocessors = 1;
constexpr int uncorrected = 1;
constexpr int since_driver_start = 0;

class Library {
 public:
  Library() : handle_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ != nullptr && call<int (*)()>("nvmlInit_v2") != 0) {
      ::dlclose(handle_);
      handle_ = nullptr;
    }
  }
  ~Library() {
    if (handle_ == nullptr) return;
    call<int (*)()>("nvmlShutdown");
    ::dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool is_there() const { return handle_ != nullptr; }

  /// The function's answer; not 0 if this version of the library does not have it.
  template <typename Function, typename... Arguments>
  int call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<Function>(::dlsym(handle_, name));
    return function == nullptr ? -1 : function(arguments...);
  }

 private:
  void* handle_;
};

std::string text_of(const Library& nvml, const char* function, Device device) {
  std::array<char, 128> text{};
  nvml.call<int (*)(Device, char*, unsigned)>(function, device, text.data(),
                                              static_cast<unsigned>(text.size() - 1));
  return text.data();
}

/// A number that NVML tells of a device, or -1.
std::int64_t number_of(const Library& nvml, const char* function, Device device) {
  unsigned value = 0;
  return nvml.call<int (*)(Device, unsigned*)>(function, device, &value) == 0
             ? static_cast<std::int64_t>(value)
             : -1;
}

std::string name_of_process(unsigned pid) {
  std::string name;
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::getline(file, name);
  return name.empty() ? fmt::format("{}", pid) : fmt::format("{} ({})", pid, name);
}

void ask_health(const Library& nvml, Device device, Gpu& gpu) {
  unsigned long long bits = 0;
  if (nvml.call<int (*)(Device, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons",
                                                      device, &bits) == 0) {
    SlowReasons reasons = slow_reasons(bits);
    gpu.slowed_by_hardware = std::move(reasons.by_hardware);
    gpu.slowed_by_limits = std::move(reasons.by_limits);
  }
  unsigned long long errors = 0;
  if (nvml.call<int (*)(Device, int, int, unsigned long long*)>(
          "nvmlDeviceGetTotalEccErrors", device, uncorrected, since_driver_start, &errors) == 0)
    gpu.uncorrected_errors = static_cast<std::int64_t>(errors);
  unsigned corrected_rows = 0, uncorrected_rows = 0, pending = 0, failed = 0;
  if (nvml.call<int (*)(Device, unsigned*, unsigned*, unsigned*, unsigned*)>(
          "nvmlDeviceGetRemappedRows", device, &corrected_rows, &uncorrected_rows, &pending,
          &failed) == 0)
    gpu.pending_pages = pending != 0 || failed != 0 ? 1 : 0;
}

void ask_use(const Library& nvml, Device device, Gpu& gpu) {
  Memory memory{};
  if (nvml.call<int (*)(Device, Memory*)>("nvmlDeviceGetMemoryInfo", device, &memory) == 0) {
    gpu.memory_bytes = static_cast<std::int64_t>(memory.total);
    gpu.free_bytes = static_cast<std::int64_t>(memory.free);
  }
  std::array<Process, 64> processes{};
  auto count = static_cast<unsigned>(processes.size());
  if (nvml.call<int (*)(Device, unsigned*, Process*)>("nvmlDeviceGetComputeRunningProcesses_v3",
                                                      device, &count, processes.data()) != 0)
    return;
  for (unsigned i = 0; i < count && i < processes.size(); ++i) {
    const std::string name = name_of_process(processes[i].pid);
    // The service through which ranks share GPUs is there whether they do or not.
    if (name.find("nvidia-cuda-mps") == std::string::npos) gpu.foreign.push_back(name);
  }
}

Gpu ask(const Library& nvml, Device device, int index) {
  Gpu gpu;
  gpu.index = index;
  gpu.name = text_of(nvml, "nvmlDeviceGetName", device);
  gpu.uuid = text_of(nvml, "nvmlDeviceGetUUID", device);
  unsigned clock = 0;
  if (nvml.call<int (*)(Device, int, unsigned*)>("nvmlDeviceGetMaxClockInfo", device,
                                                 clock_of_multiprocessors, &clock) == 0)
    gpu.clock_mhz = clock;
  const std::int64_t limit = number_of(nvml, "nvmlDeviceGetPowerManagementLimit", device);
  const std::int64_t usual = number_of(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", device);
  gpu.power_limit_w = limit < 0 ? -1 : limit / 1000;
  gpu.default_power_limit_w = usual < 0 ? -1 : usual / 1000;
  ask_health(nvml, device, gpu);
  ask_use(nvml, device, gpu);
  return gpu;
}

}  // namespace

SlowReasons slow_reasons(unsigned long long bits) {
  struct Reason {
    unsigned long long bit;
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

NvmlAnswer ask_nvml() {
  NvmlAnswer answer;
  const Library nvml;
  answer.has_library = nvml.is_there();
  unsigned count = 0;
  if (!nvml.is_there() || nvml.call<int (*)(unsigned*)>("nvmlDeviceGetCount_v2", &count) != 0)
    return answer;
  std::array<char, 96> driver{};
  nvml.call<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion", driver.data(),
                                      static_cast<unsigned>(driver.size() - 1));
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    const int error =
        nvml.call<int (*)(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2", i, &device);
    if (error != 0) {
      const std::string lost = lost_by(error);
      if (!lost.empty()) answer.gpus.push_back({.index = static_cast<int>(i), .lost = lost});
      continue;
    }
    answer.gpus.push_back(ask(nvml, device, static_cast<int>(i)));
    answer.gpus.back().driver = driver.data();
  }
  return answer;
}

}  // namespace finetune::preflight
