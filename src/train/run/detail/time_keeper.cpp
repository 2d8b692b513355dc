// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/time_keeper.hpp"

#include <algorithm>
#include <utility>

namespace finetune::train {
namespace {

/// (now - before) / steps, by axis.
std::vector<std::pair<std::string, std::int64_t>> per_step(
    std::vector<std::pair<std::string, std::int64_t>> now,
    const std::vector<std::pair<std::string, std::int64_t>>& before, std::int64_t num_steps) {
  for (std::size_t i = 0; i < now.size(); ++i)
    now[i].second = (now[i].second - before[i].second) / std::max<std::int64_t>(1, num_steps);
  return now;
}

using ExposedTimes = std::vector<std::pair<std::string, double>>;

void add_to(ExposedTimes& sums, const ExposedTimes& more) {
  if (sums.empty())
    sums = more;
  else
    for (std::size_t i = 0; i < more.size(); ++i)
      sums[i].second += more[i].second;
}

/// Nothing where units alone travel: a step's times say it all.
ExposedTimes per_step(ExposedTimes sums, std::int64_t num_steps) {
  constexpr std::size_t of_units = 2;  // fsdp and dp_replicate
  if (sums.size() <= of_units) return {};
  for (auto& [axis, seconds] : sums)
    seconds /= static_cast<double>(std::max<std::int64_t>(1, num_steps));
  return sums;
}

}  // namespace

TimeKeeper::TimeKeeper(const comm::Communicator& world, const shard::Groups& groups,
                       std::string host)
    : world_(world),
      groups_(groups),
      host_(std::move(host)),
      sent_before_(sent_bytes()),
      sent_at_first_(sent_before_) {}

TimeKeeper::SentBytes TimeKeeper::sent_bytes() const {
  SentBytes sent;
  std::int64_t to_other_nodes = 0;
  for (const auto& [name, group] : groups_.all()) {
    const comm::Traffic traffic = group->traffic();
    sent.emplace_back(name, traffic.sent_bytes);
    to_other_nodes += traffic.to_other_nodes_bytes;
  }
  sent.emplace_back(metrics::to_other_nodes, to_other_nodes);
  return sent;
}

void TimeKeeper::add(const metrics::StepTimes& step, const ExposedTimes& by_axis) {
  sum_.add(step);
  add_to(exposed_, by_axis);
  ++num_steps_;
}

metrics::TimeReport TimeKeeper::report(const metrics::PeakBytes& peak) {
  metrics::TimeReport report = metrics::gather_times(world_, sum_, num_steps_, host_, peak);
  SentBytes now = sent_bytes();
  report.sent_bytes = per_step(now, sent_before_, num_steps_);
  sent_before_ = std::move(now);
  report.exposed_s = per_step(exposed_, num_steps_);
  add_to(total_exposed_, std::exchange(exposed_, {}));
  total_.add(std::exchange(sum_, {}));
  total_steps_ += std::exchange(num_steps_, 0);
  return report;
}

metrics::TimeReport TimeKeeper::total(const metrics::PeakBytes& peak) {
  metrics::StepTimes sum = total_;
  sum.add(sum_);
  const std::int64_t num_steps = total_steps_ + num_steps_;
  metrics::TimeReport report = metrics::gather_times(world_, sum, num_steps, host_, peak);
  report.sent_bytes = per_step(sent_bytes(), sent_at_first_, num_steps);
  ExposedTimes exposed = total_exposed_;
  add_to(exposed, exposed_);
  report.exposed_s = per_step(std::move(exposed), num_steps);
  return report;
}

}  // namespace finetune::train
