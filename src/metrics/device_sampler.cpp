// SPDX-License-Identifier: Apache-2.0
#include "metrics/device_sampler.hpp"

#include <pthread.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/memory.hpp"

namespace finetune::metrics {
namespace {

namespace fs = std::filesystem;
using core::Nvml;

/// Seconds that all threads of this process computed.
double processor_s() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// What grows, from the first time that it was read.
class Growth {
 public:
  /// Returns by how much it grew since the last time. A counter that begins again at 0 after
  /// `range` grew past that.
  double to(double now, double range = 0) {
    const double before = std::exchange(last_, now).value_or(now);
    const double grown = now >= before ? now - before : range > 0 ? now + range - before : 0;
    total_ += grown;
    return grown;
  }
  double total() const { return total_; }

 private:
  std::optional<double> last_;
  double total_ = 0;
};

/// Energy counters of the processors' packages (Linux, powercap), in microjoules.
class Packages {
 public:
  explicit Packages(const fs::path& root) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(root / "sys/class/powercap", error)) {
      // intel-rapl:0 is a package, intel-rapl:0:0 a part of it.
      const std::string name = entry.path().filename().string();
      const auto colon = name.find(':');
      if (colon == std::string::npos || name.find(':', colon + 1) != std::string::npos) continue;
      double range = 0;
      std::ifstream(entry.path() / "max_energy_range_uj") >> range;
      packages_.push_back({entry.path() / "energy_uj", range, {}});
    }
  }
  void look() {
    for (Package& package : packages_) {
      double now = 0;
      // Since 2020 the system lets few users read it.
      if (std::ifstream(package.file) >> now) package.growth.to(now, package.range);
    }
  }
  double joules() const {
    double sum = 0;
    for (const Package& package : packages_)
      sum += package.growth.total();
    return 1e-6 * sum;
  }

 private:
  struct Package {
    fs::path file;
    double range;
    Growth growth;
  };
  std::vector<Package> packages_;
};

// What NVML's functions write (NVML API reference, NVIDIA).
struct Utilisation {
  unsigned gpu, memory;  // percent
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type, error;
  unsigned long long value;
};
struct Event {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
constexpr int on_die = 0, of_multiprocessors = 1;
constexpr int sent = 0, received = 1;
constexpr unsigned nvlink_sent_kib = 138, nvlink_received_kib = 139, all_links = ~0U;
constexpr unsigned long long critical_xid = 8;

}  // namespace

/// One GPU by NVML, and this process.
class DeviceSampler::Looker {
 public:
  explicit Looker(const SampledDevice& device) {
    if (device.tells_of_node) packages_.emplace(device.root);
    if (!device.gpu_uuid.empty()) open(device);
    processor_s_.to(processor_s());
    if (packages_) packages_->look();
    look_at_counters(0);
  }
  ~Looker() {
    if (events_ != nullptr) nvml_->call<int (*)(void*)>("nvmlEventSetFree", events_);
  }
  Looker(const Looker&) = delete;
  Looker& operator=(const Looker&) = delete;

  /// What is so now, and what changed in the last `seconds`.
  DeviceUse look(double seconds) {
    now_ = {};
    if (seconds > 0) set(DeviceUse::cores, processor_s_.to(processor_s()) / seconds);
    set(DeviceUse::rss_bytes, static_cast<double>(core::resident_bytes()));
    if (packages_) packages_->look();
    if (device_ != nullptr) {
      look_at_gpu();
      look_at_counters(seconds);
      look_for_events();
    }
    now_.gpu_energy_j = energy_.total() / 1000;
    now_.cpu_energy_j = packages_ ? packages_->joules() : 0;
    now_.memory_errors = errors_.total();
    now_.xid = xid_;
    return now_;
  }

 private:
  void open(const SampledDevice& device) {
    nvml_.emplace(device.nvml.c_str());
    if (nvml_->call<int (*)(const char*, void**)>("nvmlDeviceGetHandleByUUID",
                                                  device.gpu_uuid.c_str(), &device_) != 0)
      device_ = nullptr;
    if (device_ == nullptr) return;
    if (nvml_->call<int (*)(void**)>("nvmlEventSetCreate", &events_) != 0) events_ = nullptr;
    if (events_ != nullptr)
      nvml_->call<int (*)(void*, unsigned long long, void*)>("nvmlDeviceRegisterEvents", device_,
                                                             critical_xid, events_);
  }

  void set(DeviceUse::Value value, double number) { now_.values[value] = number; }
  /// What a function writes as a number of 32 bits.
  template <typename... Arguments>
  void ask(DeviceUse::Value value, const char* function, double unit, Arguments... arguments) {
    unsigned number = 0;
    if (nvml_->call<int (*)(void*, Arguments..., unsigned*)>(function, device_, arguments...,
                                                             &number) == 0)
      set(value, unit * number);
  }

  void look_at_gpu() {
    Utilisation utilisation{};
    if (nvml_->call<int (*)(void*, Utilisation*)>("nvmlDeviceGetUtilizationRates", device_,
                                                  &utilisation) == 0)
      set(DeviceUse::gpu_use, utilisation.gpu / 100.0);
    if (const auto memory = nvml_->memory(device_))
      set(DeviceUse::gpu_memory_bytes, static_cast<double>(memory->used));
    ask(DeviceUse::gpu_power_w, "nvmlDeviceGetPowerUsage", 1e-3);
    ask(DeviceUse::gpu_temperature_c, "nvmlDeviceGetTemperature", 1, on_die);
    ask(DeviceUse::gpu_clock_mhz, "nvmlDeviceGetClockInfo", 1, of_multiprocessors);
    unsigned to = 0, from = 0;
    using Throughput = int (*)(void*, int, unsigned*);
    if (nvml_->call<Throughput>("nvmlDeviceGetPcieThroughput", device_, sent, &to) == 0 &&
        nvml_->call<Throughput>("nvmlDeviceGetPcieThroughput", device_, received, &from) == 0)
      set(DeviceUse::pcie_gb_per_s, 1e-6 * (static_cast<double>(to) + from));
    now_.slow_bits = nvml_->slow_bits(device_);
  }

  /// What only grows; `seconds` since the last time, 0: this is the first.
  void look_at_counters(double seconds) {
    if (device_ == nullptr) return;
    unsigned long long millijoules = 0;
    if (nvml_->call<int (*)(void*, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption",
                                                         device_, &millijoules) == 0)
      energy_.to(static_cast<double>(millijoules));
    if (const auto errors = nvml_->memory_errors(device_, Nvml::Errors::uncorrected); errors >= 0)
      errors_.to(static_cast<double>(errors));
    std::array<FieldValue, 2> links{};
    links[0].field = nvlink_sent_kib;
    links[1].field = nvlink_received_kib;
    links[0].scope = links[1].scope = all_links;
    if (nvml_->call<int (*)(void*, int, FieldValue*)>("nvmlDeviceGetFieldValues", device_, 2,
                                                      links.data()) != 0 ||
        links[0].error != 0 || links[1].error != 0)
      return;
    constexpr double kib = 1024;
    const double grown =
        kib * links_.to(static_cast<double>(links[0].value) + static_cast<double>(links[1].value));
    if (seconds > 0) set(DeviceUse::nvlink_gb_per_s, 1e-9 * grown / seconds);
  }

  void look_for_events() {
    constexpr unsigned no_wait_ms = 0;
    Event event{};
    if (events_ != nullptr &&
        nvml_->call<int (*)(void*, Event*, unsigned)>("nvmlEventSetWait_v2", events_, &event,
                                                      no_wait_ms) == 0 &&
        event.type == critical_xid)
      xid_ = static_cast<double>(event.data);
  }

  std::optional<Nvml> nvml_;
  void* device_ = nullptr;
  void* events_ = nullptr;
  std::optional<Packages> packages_;
  Growth processor_s_, energy_, errors_, links_;
  double xid_ = 0;
  DeviceUse now_;
};

/// Samples since the last report.
class DeviceSampler::Sums {
 public:
  void add(const DeviceUse& sample) {
    for (std::size_t i = 0; i < DeviceUse::num_values; ++i) {
      if (std::isnan(sample.values[i])) continue;
      sums_[i] += sample.values[i];
      ++counts_[i];
    }
    for (std::size_t bit = 0; bit < slow_.size(); ++bit)
      slow_[bit] += (sample.slow_bits >> bit & 1) != 0 ? 1 : 0;
    ++num_samples_;
    last_ = sample;
  }

  /// Where steps are faster than samples, what the last one said.
  DeviceUse take() {
    DeviceUse use = last_;
    if (num_samples_ == 0) return use;
    use.slow_bits = 0;
    for (std::size_t i = 0; i < DeviceUse::num_values; ++i)
      if (counts_[i] > 0) use.values[i] = sums_[i] / static_cast<double>(counts_[i]);
    for (std::size_t bit = 0; bit < slow_.size(); ++bit)
      if (slow_[bit] > 0 && 2 * slow_[bit] >= num_samples_)
        use.slow_bits |= std::uint64_t{1} << bit;
    last_ = use;
    sums_ = {};
    counts_ = {};
    slow_ = {};
    num_samples_ = 0;
    return use;
  }

 private:
  std::array<double, DeviceUse::num_values> sums_{};
  std::array<std::int64_t, DeviceUse::num_values> counts_{};
  std::array<std::int64_t, 16> slow_{};  ///< samples with each bit
  std::int64_t num_samples_ = 0;
  DeviceUse last_;
};

DeviceSampler::DeviceSampler(const SampledDevice& device, double interval_s)
    : looker_(std::make_unique<Looker>(device)), sums_(std::make_unique<Sums>()) {
  if (interval_s > 0) thread_ = std::thread([this, interval_s] { run(interval_s); });
}

DeviceSampler::~DeviceSampler() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DeviceSampler::run(double interval_s) {
  // Signals are the main thread's.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  core::Stopwatch watch;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::duration<double>(interval_s),
                         [&] { return is_closing_; })) {
    const double seconds = watch.seconds();
    watch.restart();
    lock.unlock();
    sample(seconds);
    lock.lock();
  }
}

void DeviceSampler::sample(double seconds) {
  // Nobody waits for what is looked at.
  const DeviceUse now = looker_->look(seconds);
  const std::lock_guard lock(mutex_);
  sums_->add(now);
}

DeviceUse DeviceSampler::take() {
  const std::lock_guard lock(mutex_);
  return sums_->take();
}

}  // namespace finetune::metrics
