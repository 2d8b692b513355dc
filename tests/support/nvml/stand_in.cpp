// SPDX-License-Identifier: Apache-2.0
// A library of the name and the functions of NVIDIA's NVML that are asked for while a program runs.
// What it answers is in the file that FINETUNE_NVML_STAND_IN names, read at each call: lines
// "GPU function number", where GPU is a UUID or * for all; a function without a line fails, as one
// that a device does not have.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace {

using Device = void*;
constexpr int done = 0, not_supported = 3, not_found = 6, timed_out = 10;

std::mutex mutex;
std::map<std::string, std::unique_ptr<std::string>> devices;

std::optional<unsigned long long> answer(Device device, const std::string& function) {
  const char* path = std::getenv("FINETUNE_NVML_STAND_IN");
  std::ifstream file(path == nullptr ? "" : path);
  const std::string& own = *static_cast<std::string*>(device);
  std::optional<unsigned long long> found;
  std::string gpu, name, number;
  while (file >> gpu >> name >> number)
    if ((gpu == own || (gpu == "*" && !found)) && name == function)
      found = std::stoull(number, nullptr, 0);
  return found;
}

template <typename Number>
int tell(Device device, const std::string& function, Number* to) {
  const auto found = answer(device, function);
  if (!found) return not_supported;
  *to = static_cast<Number>(*found);
  return done;
}

struct Utilisation {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type, error;
  unsigned long long value;
};
struct Event {
  Device device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
Device waited_for = nullptr;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return done;
}
int nvmlShutdown() {
  return done;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  const std::lock_guard lock(mutex);
  auto& name = devices[uuid];
  if (!name) name = std::make_unique<std::string>(uuid);
  *device = name.get();
  return answer(*device, "missing") ? not_found : done;
}
int nvmlDeviceGetUtilizationRates(Device device, Utilisation* to) {
  return tell(device, "utilisation", &to->gpu);
}
int nvmlDeviceGetMemoryInfo(Device device, Memory* to) {
  return tell(device, "memory", &to->used);
}
int nvmlDeviceGetPowerUsage(Device device, unsigned* to) {
  return tell(device, "power", to);
}
int nvmlDeviceGetTemperature(Device device, int, unsigned* to) {
  return tell(device, "temperature", to);
}
int nvmlDeviceGetClockInfo(Device device, int, unsigned* to) {
  return tell(device, "clock", to);
}
int nvmlDeviceGetPcieThroughput(Device device, int direction, unsigned* to) {
  return tell(device, direction == 0 ? "pcie_sent" : "pcie_received", to);
}
int nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long* to) {
  return tell(device, "energy", to);
}
int nvmlDeviceGetTotalEccErrors(Device device, int kind, int, unsigned long long* to) {
  return tell(device, kind == 0 ? "corrected" : "uncorrected", to);
}
int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long* to) {
  return tell(device, "slow", to);
}
int nvmlDeviceGetFieldValues(Device device, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i)
    values[i].error =
        tell(device, values[i].field == 138 ? "nvlink_sent" : "nvlink_received", &values[i].value);
  return done;
}
int nvmlEventSetCreate(void** events) {
  *events = &waited_for;
  return done;
}
int nvmlEventSetFree(void*) {
  return done;
}
int nvmlDeviceRegisterEvents(Device device, unsigned long long, void*) {
  waited_for = device;
  return done;
}
int nvmlEventSetWait_v2(void*, Event* to, unsigned) {
  to->type = 8;
  to->device = waited_for;
  return tell(waited_for, "xid", &to->data) == done ? done : timed_out;
}

}  // extern "C"
