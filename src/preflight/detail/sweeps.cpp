// SPDX-License-Identifier: Apache-2.0
// What sweeps say, without libtorch.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/text.hpp"
#include "plan/layout/axes.hpp"
#include "preflight/detail/links.hpp"
#include "preflight/detail/rates.hpp"

namespace finetune::preflight {
namespace {

// In the same collective of the same size other groups need half of the time.
constexpr double slow_sweep = 2;

}  // namespace

std::vector<std::string> collectives_of(const std::string& axis) {
  if (axis == plan::groups::ep_name) return {"all_to_all"};
  if (axis == plan::groups::cp.name) return {"all_to_all", hand_on};
  return {"all_gather", "reduce_scatter", "all_reduce"};
}

double Sweep::ring_gb_per_s() const {
  if (points.empty() || points.back().seconds <= 0) return 0;
  const bool is_whole = collective == hand_on;
  const double part =
      is_whole ? 1 : static_cast<double>(group_size - 1) / static_cast<double>(group_size);
  const double times = collective == "all_reduce" ? 2 : 1;
  return times * part * static_cast<double>(points.back().bytes) / points.back().seconds / 1e9;
}

double Sweep::latency_us() const {
  return points.empty() ? 0 : 1e6 * points.front().seconds;
}

Finding judge_sweeps(const JobFacts& job, std::span<const Sweep> sweeps,
                     const std::vector<std::vector<double>>& seconds) {
  Finding finding{.subject = "collectives", .text = {}};
  std::string axis;
  for (const Sweep& sweep : sweeps) {
    if (sweep.points.empty()) continue;
    if (sweep.axis != axis) {
      axis = sweep.axis;
      finding.text += fmt::format("{}{} ({} ranks, {}):", finding.text.empty() ? "" : "; ", axis,
                                  sweep.group_size, core::human_bytes(sweep.points.back().bytes));
    }
    finding.text += fmt::format("{} {} {:.3g} GB/s", finding.text.ends_with(":") ? "" : ",",
                                sweep.collective, sweep.ring_gb_per_s());
    finding.details += fmt::format("{}  {:<12} {:<14}", finding.details.empty() ? "" : "\n", axis,
                                   sweep.collective);
    for (const SweepPoint& point : sweep.points)
      finding.details +=
          fmt::format("  {} in {:.3g} ms", core::human_bytes(point.bytes), 1e3 * point.seconds);
  }
  if (finding.text.empty()) finding.text = "no rank has another to talk to";
  // Nodes of which all ranks wait: in groups that differ, those of one group do.
  std::set<std::pair<int, std::string>> told;
  for (std::size_t i = 0; i < sweeps.size(); ++i) {
    const double usual = median(seconds[i]);
    for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
      const Facts& facts = job.ranks[rank];
      if (seconds[i][rank] <= slow_sweep * usual ||
          !told.insert({facts.node, sweeps[i].axis}).second)
        continue;
      finding.warn({fmt::format("{}: rank {}", job.node_of(facts), facts.rank),
                    fmt::format("its {} of {} takes {:.3g} ms", sweeps[i].collective,
                                sweeps[i].axis, 1e3 * seconds[i][rank]),
                    fmt::format("most ranks need {:.3g}", 1e3 * usual),
                    "Look for other processes and slow links of that node."});
    }
  }
  shorten(finding);
  return finding;
}

}  // namespace finetune::preflight
