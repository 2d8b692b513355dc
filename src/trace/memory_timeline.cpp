// SPDX-License-Identifier: Apache-2.0
#include "trace/memory_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace finetune::trace {
namespace {

constexpr std::size_t most_moments = 400;

double sum_of(const Event& moment) {
  double sum = 0;
  for (const auto& [use, mib] : moment.args.items())
    sum += mib.get<double>();
  return sum;
}

}  // namespace

std::string memory_timeline(const RankTrace& trace) {
  std::vector<const Event*> all;
  for (const Event& event : trace.events)
    if (event.is_counter && event.name == "memory") all.push_back(&event);
  if (all.empty()) return {};
  core::Json at_s = core::Json::array(), mib = core::Json::object();
  const std::size_t count = std::min(most_moments, all.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * all.size() / count);
    const auto end = all.begin() + static_cast<std::ptrdiff_t>((i + 1) * all.size() / count);
    const Event& kept = **std::max_element(
        begin, end, [](const Event* a, const Event* b) { return sum_of(*a) < sum_of(*b); });
    at_s.push_back(static_cast<double>(kept.begin_ns - all.front()->begin_ns) * 1e-9);
    for (const auto& [use, value] : kept.args.items())
      mib[use].push_back(value);
  }
  return core::Json{{"rank", trace.rank},
                    {"first_step", trace.first_step},
                    {"last_step", trace.last_step},
                    {"at_s", std::move(at_s)},
                    {"mib", std::move(mib)}}
             .dump() +
         "\n";
}

std::string timeline_name(const RankTrace& trace) {
  return fmt::format("memory.steps-{}-{}.json", trace.first_step, trace.last_step);
}

}  // namespace finetune::trace
