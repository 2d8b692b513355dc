// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/gpus.hpp"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <string>
#include <utility>

#include "core/nvml.hpp"

namespace finetune::preflight {
namespace {

// The part of NVML's interface that is used, as its documentation gives it (NVML API reference,
// NVIDIA): every function returns 0 if it could do what was asked.
using core::Nvml;
using Device = Nvml::Device;
struct Process {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
constexpr int clock_of_multiprocessors = 1;

std::string name_of_process(unsigned pid) {
  std::string name;
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::getline(file, name);
  return name.empty() ? fmt::format("{}", pid) : fmt::format("{} ({})", pid, name);
}

void ask_health(const Nvml& nvml, Device device, Gpu& gpu) {
  core::SlowReasons reasons = core::slow_reasons(nvml.slow_bits(device));
  gpu.slowed_by_hardware = std::move(reasons.by_hardware);
  gpu.slowed_by_limits = std::move(reasons.by_limits);
  gpu.uncorrected_errors = nvml.memory_errors(device, Nvml::Errors::uncorrected);
  unsigned corrected_rows = 0, uncorrected_rows = 0, pending = 0, failed = 0;
  if (nvml.call<int (*)(Device, unsigned*, unsigned*, unsigned*, unsigned*)>(
          "nvmlDeviceGetRemappedRows", device, &corrected_rows, &uncorrected_rows, &pending,
          &failed) == 0)
    gpu.pending_pages = pending != 0 || failed != 0 ? 1 : 0;
}

void ask_use(const Nvml& nvml, Device device, Gpu& gpu) {
  if (const auto memory = nvml.memory(device)) {
    gpu.memory_bytes = static_cast<std::int64_t>(memory->total);
    gpu.free_bytes = static_cast<std::int64_t>(memory->free);
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

Gpu ask(const Nvml& nvml, Device device, int index) {
  Gpu gpu;
  gpu.index = index;
  gpu.name = nvml.text_of("nvmlDeviceGetName", device);
  gpu.uuid = nvml.text_of("nvmlDeviceGetUUID", device);
  unsigned clock = 0;
  if (nvml.call<int (*)(Device, int, unsigned*)>("nvmlDeviceGetMaxClockInfo", device,
                                                 clock_of_multiprocessors, &clock) == 0)
    gpu.clock_mhz = clock;
  const std::int64_t limit = nvml.number_of("nvmlDeviceGetPowerManagementLimit", device);
  const std::int64_t usual = nvml.number_of("nvmlDeviceGetPowerManagementDefaultLimit", device);
  gpu.power_limit_w = limit < 0 ? -1 : limit / 1000;
  gpu.default_power_limit_w = usual < 0 ? -1 : usual / 1000;
  ask_health(nvml, device, gpu);
  ask_use(nvml, device, gpu);
  return gpu;
}

}  // namespace

NvmlAnswer ask_nvml() {
  NvmlAnswer answer;
  const Nvml nvml;
  answer.has_library = nvml.is_there();
  const int count = nvml.num_devices();
  if (count == 0) return answer;
  std::array<char, 96> driver{};
  nvml.call<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion", driver.data(),
                                      static_cast<unsigned>(driver.size() - 1));
  for (int i = 0; i < count; ++i) {
    Device device = nullptr;
    const int error = nvml.open(static_cast<unsigned>(i), device);
    if (error != 0) {
      const std::string lost = core::lost_by(error);
      if (!lost.empty()) answer.gpus.push_back({.index = i, .lost = lost});
      continue;
    }
    answer.gpus.push_back(ask(nvml, device, i));
    answer.gpus.back().driver = driver.data();
  }
  return answer;
}

}  // namespace finetune::preflight
