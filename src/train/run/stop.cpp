// SPDX-License-Identifier: Apache-2.0
#include "train/run/stop.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "core/error.hpp"

namespace finetune::train {
namespace {

// A handler can reach nothing but these, and nothing that takes a lock.
static_assert(std::atomic<std::int64_t>::is_always_lock_free);
bool is_under_slurm() {
  return std::getenv("SLURM_JOB_ID") != nullptr;
}
StopSignals own_signals(is_under_slurm());
volatile std::sig_atomic_t checkpoint_is_there = 0;
/// Age of the process when the run in it began.
std::atomic<double> begun_at_age_s = 0;

/// Monotonic; also while the machine sleeps.
std::int64_t time_of_signal_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return 1'000'000'000 * std::int64_t{now.tv_sec} + now.tv_nsec;
}

void remember(int signal) {
  if (own_signals.add(signal, time_of_signal_ns()) == StopSignals::Answer::end_at_once)
    ::_exit(checkpoint_is_there != 0 ? core::exit_resubmit_older : 128 + signal);
}

void handle(int signal) {
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;  // a write that a signal meets goes on
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::Answer StopSignals::add(int signal, std::int64_t now_ns) {
  is_asked_ = true;
  if (signal == SIGUSR1) return Answer::remember;
  std::int64_t first_ns = 0;
  if (first_ns_.compare_exchange_strong(first_ns, now_ns)) return Answer::remember;
  if (signal == SIGTERM && terms_repeat_) return Answer::remember;
  return now_ns - first_ns < pause_ns ? Answer::remember : Answer::end_at_once;
}

void watch_signals() {
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT})
    handle(signal);
}

void StopSignals::forget() {
  is_asked_ = false;
  first_ns_ = 0;
}

void forget_signals() {
  own_signals.forget();
  checkpoint_is_there = 0;
  begun_at_age_s = begun_at_age_s + process_age_s();
}

void tell_signals(bool has_checkpoint) {
  checkpoint_is_there = has_checkpoint ? 1 : 0;
}

std::string second_signals() {
  return is_under_slurm() ? "SIGINT" : "SIGTERM or SIGINT";
}

bool stop_is_asked() {
  return own_signals.is_asked();
}

void TimeLimit::add_step(double seconds) {
  longest_step_s_ = std::max(longest_step_s_, seconds);
}

void TimeLimit::add_save(double seconds) {
  longest_save_s_ = std::max(longest_save_s_, seconds);
}

double TimeLimit::save_margin_s() const {
  const double save_s = longest_save_s_ < 0 ? first_save_s_ : longest_save_s_;
  return 2 * save_s + std::min(60.0, 0.05 * max_s_);
}

double TimeLimit::margin_s() const {
  return save_margin_s() + 2 * longest_step_s_;
}

bool TimeLimit::is_due(double process_s) const {
  return max_s_ > 0 && max_s_ - process_s < margin_s();
}

bool TimeLimit::is_overdue(double process_s) const {
  return max_s_ > 0 && max_s_ - process_s < save_margin_s();
}

double process_age_s() {
  // Field 22 of stat is the start in clock ticks since boot; the name before it may hold spaces.
  std::ostringstream text;
  text << std::ifstream("/proc/self/stat").rdbuf();
  const std::string stat = text.str();
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string field;
  for (int i = 3; i <= 22 && fields; ++i)
    fields >> field;
  timespec now = {};
  if (!fields || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double start_s = static_cast<double>(std::strtoull(field.c_str(), nullptr, 10)) /
                         static_cast<double>(::sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - start_s -
         begun_at_age_s;
}

}  // namespace finetune::train
