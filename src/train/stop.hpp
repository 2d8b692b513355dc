#pragma once
// SPDX-License-Identifier: Apache-2.0
// Why a run ends early: signals, and the time it was allotted.

#include <cstdint>

namespace finetune::train {

/// From now on SIGUSR1, SIGTERM and SIGINT are remembered instead of ending the process. A second
/// SIGTERM or SIGINT ends it at once.
void watch_signals();

/// What a second signal leaves behind: with a checkpoint the process ends with
/// core::exit_resubmit_older, without one as the signal would have ended it.
void tell_signals(bool has_checkpoint);

/// Whether one has come to this rank.
bool stop_is_asked();

/// Tells when the last checkpoint has to be begun, from how long steps and saves have taken.
class TimeLimit {
 public:
  /// `max_s`: seconds this process may live; 0: no limit. `first_save_s`: how long a save takes, as
  /// long as none has been seen.
  TimeLimit(double max_s, double first_save_s) : max_s_(max_s), first_save_s_(first_save_s) {}

  /// From one end of a step to the next, with validation, without saves.
  void add_step(double seconds);
  void add_save(double seconds);

  /// Seconds to spare for the last save: twice the longest save and the longest step, because the
  /// next may be longer, and a twentieth of the limit (at most a minute) for starting and ending.
  double margin_s() const;

  /// Whether another step might leave too little time for the last save.
  bool is_due(double process_s) const;

 private:
  double max_s_;
  double first_save_s_;
  double longest_step_s_ = 0;
  double longest_save_s_ = -1;
};

/// Seconds since this process was started, by its entry in /proc.
double process_age_s();

}  // namespace finetune::train
