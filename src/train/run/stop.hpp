#pragma once
// SPDX-License-Identifier: Apache-2.0
// Why a run ends early: signals, and the time it was allotted.

#include <atomic>
#include <cstdint>
#include <string>

namespace finetune::train {

/// What a signal asks for, given those that came before. Everything may be called in a signal
/// handler.
class StopSignals {
 public:
  enum class Answer { remember, end_at_once };

  /// Slurm sends SIGTERM twice within a fraction of a second to a job that it preempts. Only what
  /// comes so much later is somebody who does not want to wait for the checkpoint.
  static constexpr std::int64_t pause_ns = 3'000'000'000;

  /// `terms_repeat`: SIGTERM may come again later without meaning more, because SIGKILL follows
  /// anyway: Slurm sends another when the grace time of a preempted job is over, and then leaves
  /// KillWait seconds, in which a save may still end.
  explicit StopSignals(bool terms_repeat) : terms_repeat_(terms_repeat) {}

  /// SIGUSR1, SIGTERM or SIGINT at `now_ns` of a clock that starts after 0 and never goes back.
  Answer add(int signal, std::int64_t now_ns);

  bool is_asked() const { return is_asked_; }

  /// As if no signal had come.
  void forget();

 private:
  bool terms_repeat_;
  std::atomic<bool> is_asked_ = false;
  std::atomic<std::int64_t> first_ns_ = 0;  ///< of SIGTERM and SIGINT
};

/// From now on SIGUSR1, SIGTERM and SIGINT are remembered instead of ending the process. A second
/// SIGTERM or SIGINT ends it at once, by the rules of StopSignals.
void watch_signals();

/// As a process that has just started: no signal has come, there is no checkpoint, and its age
/// counts from now. For processes in which another run begins.
void forget_signals();

/// What a second signal leaves behind: with a checkpoint the process ends with
/// core::exit_resubmit_older, without one as the signal would have ended it.
void tell_signals(bool has_checkpoint);

/// The signals that end the process when they come a second time, for messages.
std::string second_signals();

/// Whether one has come to this rank.
bool stop_is_asked();

/// Why a run ends then.
inline constexpr const char* signal_reason = "a signal asked to stop";

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

  /// Whether the step that is under way has to be dropped: it takes so much longer than the ones
  /// before that only the last save still fits.
  bool is_overdue(double process_s) const;

 private:
  double save_margin_s() const;

  double max_s_;
  double first_save_s_;
  double longest_step_s_ = 0;
  double longest_save_s_ = -1;
};

/// Seconds since this process was started, by its entry in /proc; or since forget_signals.
double process_age_s();

}  // namespace finetune::train
