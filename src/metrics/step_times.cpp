// SPDX-License-Identifier: Apache-2.0
#include "metrics/step_times.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/json.hpp"
#include "core/text.hpp"

namespace finetune::metrics {
namespace {

constexpr std::size_t num_parts = StepTimes::names.size();
constexpr std::size_t exposed = 1;

}  // namespace

void StepTimes::add(const StepTimes& other) {
  compute_s += other.compute_s;
  exposed_s += other.exposed_s;
  data_s += other.data_s;
  optimizer_s += other.optimizer_s;
  checkpoint_s += other.checkpoint_s;
}

TimeReport gather_times(const comm::Communicator& world, const StepTimes& sum,
                        std::int64_t num_steps, const std::string& host, const PeakBytes& peak) {
  // Bytes as fp64: exact up to 2^53.
  constexpr std::size_t num_values = num_parts + 2;
  std::vector<double> mine;
  for (const double seconds : sum.values())
    mine.push_back(seconds / static_cast<double>(std::max<std::int64_t>(1, num_steps)));
  mine.push_back(static_cast<double>(peak.tensors));
  mine.push_back(static_cast<double>(peak.process));
  std::vector<double> all(num_values * static_cast<std::size_t>(world.size()));
  world.all_gather(core::DType::f64, mine.data(), all.data(), num_values);
  const auto of_ranks = [&](std::size_t value) {
    std::vector<double> values;
    for (std::size_t i = value; i < all.size(); i += num_values)
      values.push_back(all[i]);
    return values;
  };

  TimeReport report;
  report.num_steps = num_steps;
  report.peak = {static_cast<std::int64_t>(std::ranges::max(of_ranks(num_parts))),
                 static_cast<std::int64_t>(std::ranges::max(of_ranks(num_parts + 1)))};
  std::vector<double> waits;
  for (std::size_t part = 0; part < num_parts; ++part) {
    std::vector<double> values = of_ranks(part);
    if (part == exposed) waits = values;
    report.parts[part] = spread_of(std::move(values));
  }
  report.slowest_rank =
      static_cast<int>(std::min_element(waits.begin(), waits.end()) - waits.begin());
  report.slowest_host = world.broadcast_text(host, report.slowest_rank);
  return report;
}

std::string to_json_fields(const TimeReport& r) {
  std::string text = fmt::format(R"("times": {{"steps": {})", r.num_steps);
  for (std::size_t part = 0; part < num_parts; ++part) {
    text += fmt::format(R"(, "{}": [{}, {}, {}])", StepTimes::names[part],
                        core::round_trip(r.parts[part].min), core::round_trip(r.parts[part].median),
                        core::round_trip(r.parts[part].max));
  }
  text += fmt::format(R"(, "slowest_rank": {}, "slowest_host": {}}}, "sent_bytes": {{)",
                      r.slowest_rank, core::Json(r.slowest_host).dump());
  const char* comma = "";
  for (const auto& [axis, bytes] : r.sent_bytes) {
    if (axis == to_other_nodes && bytes <= 0) continue;
    text += fmt::format(R"({}"{}": {})", comma, axis, bytes);
    comma = ", ";
  }
  text += "}";
  if (!r.exposed_s.empty()) {
    text += R"(, "exposed_s": {)";
    comma = "";
    for (const auto& [axis, seconds] : r.exposed_s) {
      text += fmt::format(R"({}"{}": {})", comma, axis, core::round_trip(seconds));
      comma = ", ";
    }
    text += "}";
  }
  if (r.peak.process > 0)
    text += fmt::format(R"(, "peak_bytes": {{"tensors": {}, "process": {}}})", r.peak.tensors,
                        r.peak.process);
  return text;
}

std::string to_string(const TimeReport& r) {
  const auto of = [&](std::size_t part, const char* name) {
    const Spread& s = r.parts[part];
    return fmt::format("{} {:.3f} s ({:.3f} to {:.3f})", name, s.median, s.min, s.max);
  };
  std::string text = "per step, median over ranks: " + of(0, "compute") + ", " +
                     of(1, "waiting for others") + ", " + of(2, "data") + ", " +
                     of(3, "optimizer") + ", " + of(4, "checkpoint");
  text += fmt::format("; slowest: rank {} on {}", r.slowest_rank, r.slowest_host);
  for (const auto& [axis, bytes] : r.sent_bytes) {
    if (bytes == 0) continue;
    if (axis != to_other_nodes)
      text += fmt::format("; sent per rank over {}: {}", axis, core::human_bytes(bytes));
    else
      text += fmt::format("; of which to other nodes: {}", core::human_bytes(bytes));
  }
  for (const auto& [axis, seconds] : r.exposed_s)
    if (seconds > 0) text += fmt::format("; waited for {}: {:.3f} s", axis, seconds);
  return text;
}

}  // namespace finetune::metrics
