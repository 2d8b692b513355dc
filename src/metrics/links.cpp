// SPDX-License-Identifier: Apache-2.0
#include "metrics/links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "core/json.hpp"
#include "core/text.hpp"

namespace finetune::metrics {
namespace {

using GroupName = std::tuple<std::string, int, int>;

GroupName name_of(const comm::LinkRate& rate) {
  return {rate.axis, rate.first_rank, rate.num_ranks};
}

/// As ranks send them to the root; axes have no spaces.
std::string as_text(std::span<const comm::LinkRate> rates) {
  std::string text;
  for (const comm::LinkRate& each : rates)
    text += fmt::format("{} {} {} {}\n", each.axis, each.first_rank, each.num_ranks,
                        core::round_trip(each.bytes_per_s));
  return text;
}

std::vector<comm::LinkRate> rates_in(const std::string& text) {
  std::vector<comm::LinkRate> rates;
  std::istringstream words(text);
  for (comm::LinkRate each;
       words >> each.axis >> each.first_rank >> each.num_ranks >> each.bytes_per_s;)
    rates.push_back(each);
  return rates;
}

/// "n1, n2": each once, in the order of the ranks.
std::string names_of(const std::vector<std::string>& nodes) {
  constexpr std::size_t most_names = 8;
  std::string text;
  std::set<std::string> known;
  for (const std::string& node : nodes)
    if (known.insert(node).second && known.size() <= most_names)
      text += (text.empty() ? "" : ", ") + node;
  if (known.size() > most_names) text += fmt::format(" and {} more", known.size() - most_names);
  return text;
}

double median_of(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

/// Of groups that each have one, by axis.
std::map<std::string, LinkReport::Axis> by_axis(std::span<const GroupRate> rates) {
  std::map<std::string, std::vector<const GroupRate*>> groups;
  for (const GroupRate& each : rates)
    groups[each.rate.axis].push_back(&each);
  std::map<std::string, LinkReport::Axis> axes;
  for (const auto& [axis, of_axis] : groups) {
    std::vector<double> values;
    const GroupRate* slowest = of_axis.front();
    for (const GroupRate* each : of_axis) {
      values.push_back(each->rate.bytes_per_s);
      if (each->rate.bytes_per_s < slowest->rate.bytes_per_s) slowest = each;
    }
    axes[axis] = {spread_of(std::move(values)), slowest->nodes};
  }
  return axes;
}

}  // namespace

std::vector<GroupRate> gather_links(const comm::Communicator& world,
                                    std::span<const comm::LinkRate> own,
                                    const std::vector<std::string>& hosts) {
  const std::vector<std::string> texts = world.gather_text(as_text(own));
  struct Seen {
    double best = 0;
    std::vector<std::string> nodes;
  };
  std::map<GroupName, Seen> groups;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    for (const comm::LinkRate& each : rates_in(texts[rank])) {
      Seen& seen = groups[name_of(each)];
      seen.best = std::max(seen.best, each.bytes_per_s);
      seen.nodes.push_back(hosts.at(rank));
    }
  }
  std::vector<GroupRate> rates;
  for (const auto& [name, seen] : groups)
    rates.push_back({{std::get<0>(name), std::get<1>(name), std::get<2>(name), seen.best},
                     names_of(seen.nodes)});
  return rates;
}

LinkReport LinkWatch::look(std::span<const GroupRate> rates, double now_s) {
  LinkReport report{.axes = by_axis(rates)};
  ++num_looks_;
  for (const GroupRate& each : rates)
    judge(each, now_s, report);
  looked_s_ = now_s;
  return report;
}

void LinkWatch::judge(const GroupRate& of, double now_s, LinkReport& report) {
  Group& group = groups_[name_of(of.rate)];
  const double rate = of.rate.bytes_per_s;
  // Nobody knows how it was between.
  if (group.seen_in + 1 != num_looks_) group.num_slow = 0;
  group.seen_in = num_looks_;
  const double usual = group.usual.size() < fewest ? 0 : median_of(group.usual);
  const SlowLink link{of.rate.axis, of.nodes, rate, usual};
  if (rate < slow_part * usual) {
    // The best of the time since the last report was slow: all of that time was.
    if (group.num_slow++ == 0) group.slow_since_s = looked_s_;
    if (group.num_slow >= fewest_slow && now_s - group.slow_since_s >= slow_after_s) {
      report.slow.push_back(link);
      if (!std::exchange(group.is_told, true)) report.became_slow.push_back(link);
    }
  } else {
    if (std::exchange(group.is_told, false)) report.recovered.push_back(link);
    group.num_slow = 0;
    // Slow rates stay out, or a link that stays slow would be the usual one in the end.
    group.usual.push_back(rate);
    if (group.usual.size() > most) group.usual.pop_front();
  }
}

std::string to_json_field(const LinkReport& report) {
  std::string rates, slowest, slow;
  for (const auto& [axis, of] : report.axes) {
    const char* comma = rates.empty() ? "" : ", ";
    rates +=
        fmt::format(R"({}"{}": [{}, {}, {}])", comma, axis, core::round_trip(of.bytes_per_s.min),
                    core::round_trip(of.bytes_per_s.median), core::round_trip(of.bytes_per_s.max));
    slowest += fmt::format(R"({}"{}": {})", comma, axis, core::Json(of.slowest_nodes).dump());
  }
  for (const SlowLink& each : report.slow)
    slow += fmt::format(
        R"({}{{"axis": "{}", "nodes": {}, "bytes_per_s": {}, "usual_bytes_per_s": {}}})",
        slow.empty() ? "" : ", ", each.axis, core::Json(each.nodes).dump(),
        core::round_trip(each.bytes_per_s), core::round_trip(each.usual_bytes_per_s));
  if (!slow.empty()) slow = fmt::format(R"(, "slow": [{}])", slow);
  return fmt::format(R"("links": {{"bytes_per_s": {{{}}}, "slowest_nodes": {{{}}}{}}})", rates,
                     slowest, slow);
}

}  // namespace finetune::metrics
