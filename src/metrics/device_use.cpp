// SPDX-License-Identifier: Apache-2.0
#include "metrics/device_use.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/json.hpp"
#include "core/nvml.hpp"
#include "core/text.hpp"

namespace finetune::metrics {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// What travels of a rank besides its values.
enum Other : std::size_t {
  of_gpu_energy = DeviceUse::num_values,
  of_cpu_energy,
  of_memory_errors,
  of_xid,
  of_slow_bits,
  num_numbers
};

/// What is known of all ranks.
class Gathered {
 public:
  Gathered(const comm::Communicator& world, const DeviceUse& own)
      : num_ranks_(static_cast<std::size_t>(world.size())), all_(num_numbers * num_ranks_) {
    std::array<double, num_numbers> mine{};
    std::ranges::copy(own.values, mine.begin());
    mine[of_gpu_energy] = own.gpu_energy_j;
    mine[of_cpu_energy] = own.cpu_energy_j;
    mine[of_memory_errors] = own.memory_errors;
    mine[of_xid] = own.xid;
    mine[of_slow_bits] = static_cast<double>(own.slow_bits);
    world.all_gather(core::DType::f64, mine.data(), all_.data(), num_numbers);
  }

  std::size_t num_ranks() const { return num_ranks_; }
  double at(std::size_t rank, std::size_t number) const {
    return all_[rank * num_numbers + number];
  }
  std::vector<double> known(std::size_t number) const {
    std::vector<double> values;
    for (std::size_t rank = 0; rank < num_ranks_; ++rank)
      if (!std::isnan(at(rank, number))) values.push_back(at(rank, number));
    return values;
  }
  double sum(std::size_t number) const {
    double sum = 0;
    for (std::size_t rank = 0; rank < num_ranks_; ++rank)
      sum += at(rank, number);
    return sum;
  }

 private:
  std::size_t num_ranks_;
  std::vector<double> all_;
};

/// Why a rank's GPU is slow; empty if it is not.
std::string why_slow(const Gathered& all, std::size_t rank, double middle_clock) {
  std::vector<std::string> why;
  const auto bits = static_cast<std::uint64_t>(all.at(rank, of_slow_bits));
  const core::SlowReasons reasons = core::slow_reasons(bits);
  std::vector<std::string> words = reasons.by_hardware;
  words.insert(words.end(), reasons.by_limits.begin(), reasons.by_limits.end());
  if (!words.empty())
    why.push_back(fmt::format("its clocks are lowered: {}", fmt::join(words, ", ")));
  const double clock = all.at(rank, DeviceUse::gpu_clock_mhz);
  if (clock < slow_clock * middle_clock)
    why.push_back(
        fmt::format("it runs at {:.0f} MHz, the middle one at {:.0f}", clock, middle_clock));
  if (all.at(rank, of_memory_errors) > 0)
    why.push_back(fmt::format("its memory had {:.0f} errors that could not be corrected",
                              all.at(rank, of_memory_errors)));
  if (all.at(rank, of_xid) > 0)
    why.push_back(fmt::format("its driver told Xid {:.0f}", all.at(rank, of_xid)));
  return fmt::format("{}", fmt::join(why, "; "));
}

}  // namespace

DeviceUse::DeviceUse() {
  values.fill(unknown);
}

DeviceReport gather_devices(const comm::Communicator& world, const DeviceUse& own,
                            const std::vector<std::string>& hosts) {
  const Gathered all(world, own);
  DeviceReport report;
  for (std::size_t value = 0; value < DeviceUse::num_values; ++value)
    if (std::vector<double> known = all.known(value); !known.empty())
      report.values[DeviceUse::names[value]] = spread_of(std::move(known));
  report.gpu_energy_j = all.sum(of_gpu_energy);
  report.cpu_energy_j = all.sum(of_cpu_energy);
  const auto clock = report.values.find(DeviceUse::names[DeviceUse::gpu_clock_mhz]);
  const double middle = clock == report.values.end() ? 0 : clock->second.median;
  for (std::size_t rank = 0; rank < all.num_ranks(); ++rank)
    if (std::string why = why_slow(all, rank, middle); !why.empty())
      report.slow.push_back({static_cast<int>(rank), hosts.at(rank), std::move(why)});
  return report;
}

std::string to_json_field(const DeviceReport& report) {
  std::string text = R"("devices": {)";
  const char* comma = "";
  for (const auto& [name, spread] : report.values) {
    text += fmt::format(R"({}"{}": [{}, {}, {}])", comma, name, core::round_trip(spread.min),
                        core::round_trip(spread.median), core::round_trip(spread.max));
    comma = ", ";
  }
  for (const auto& [name, joules] :
       {std::pair("gpu_energy_j", report.gpu_energy_j), {"cpu_energy_j", report.cpu_energy_j}})
    if (joules > 0) text += fmt::format(R"({}"{}": {})", comma, name, core::round_trip(joules));
  if (!report.slow.empty()) {
    text += R"(, "slow": [)";
    comma = "";
    for (const SlowDevice& each : report.slow) {
      text += fmt::format(R"({}{{"rank": {}, "host": {}, "why": {}}})", comma, each.rank,
                          core::Json(each.host).dump(), core::Json(each.why).dump());
      comma = ", ";
    }
    text += "]";
  }
  return text + "}";
}

std::string energy_text(const DeviceReport& report, std::int64_t tokens) {
  std::vector<std::string> parts;
  const double million = static_cast<double>(tokens) / 1e6;
  for (const auto& [name, joules] :
       {std::pair("GPUs", report.gpu_energy_j), {"processors", report.cpu_energy_j}})
    if (joules > 0 && tokens > 0)
      parts.push_back(fmt::format("{} {:.3g} kWh, {:.3g} kJ per million tokens", name,
                                  joules / 3.6e6, joules / 1e3 / million));
  if (parts.empty()) return "";
  return fmt::format("energy: {}", fmt::join(parts, "; "));
}

}  // namespace finetune::metrics
