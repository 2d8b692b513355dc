#pragma once
// SPDX-License-Identifier: Apache-2.0
// Gathers where the time of steps went, and what was sent meanwhile.

#include <cstdint>
#include <string>
#include <vector>

#include "metrics/step_times.hpp"
#include "shard/options.hpp"

namespace finetune::train {

class TimeKeeper {
 public:
  /// `host`: where this rank is.
  TimeKeeper(const comm::Communicator& world, const shard::Groups& groups, std::string host);

  using ExposedTimes = std::vector<std::pair<std::string, double>>;
  /// `by_axis`: what of the step's exposed time was waited for in each group.
  void add(const metrics::StepTimes& step, const ExposedTimes& by_axis);
  /// A save or another thing that is no part of a step, until the next report.
  void add_checkpoint_s(double seconds) { sum_.checkpoint_s += seconds; }

  /// Means of the steps since the last report; `peak` is this rank's memory. Collective on the
  /// world.
  metrics::TimeReport report(const metrics::PeakBytes& peak);

  /// The same of all steps so far.
  metrics::TimeReport total(const metrics::PeakBytes& peak);

 private:
  using SentBytes = std::vector<std::pair<std::string, std::int64_t>>;
  SentBytes sent_bytes() const;

  comm::Communicator world_;
  shard::Groups groups_;
  std::string host_;
  metrics::StepTimes sum_;
  std::int64_t num_steps_ = 0;
  ExposedTimes exposed_, total_exposed_;
  metrics::StepTimes total_;
  std::int64_t total_steps_ = 0;
  SentBytes sent_before_;    ///< the last report
  SentBytes sent_at_first_;  ///< before the first step
};

}  // namespace finetune::train
