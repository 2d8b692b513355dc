// SPDX-License-Identifier: Apache-2.0
#include "train/stop.hpp"

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

// A handler can reach nothing but these.
volatile std::sig_atomic_t asked = 0;
volatile std::sig_atomic_t asked_to_end = 0;
volatile std::sig_atomic_t checkpoint_is_there = 0;

void remember(int signal) {
  asked = 1;
  if (signal == SIGUSR1) return;
  // Whoever asks twice does not want to wait for the checkpoint.
  if (asked_to_end != 0)
    ::_exit(checkpoint_is_there != 0 ? core::exit_resubmit_older : 128 + signal);
  asked_to_end = 1;
}

void handle(int signal) {
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;  // a write that a signal meets goes on
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void watch_signals() {
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT})
    handle(signal);
}

void tell_signals(bool has_checkpoint) {
  checkpoint_is_there = has_checkpoint ? 1 : 0;
}

bool stop_is_asked() {
  return asked != 0;
}

void TimeLimit::add_step(double seconds) {
  longest_step_s_ = std::max(longest_step_s_, seconds);
}

void TimeLimit::add_save(double seconds) {
  longest_save_s_ = std::max(longest_save_s_, seconds);
}

double TimeLimit::margin_s() const {
  const double save_s = longest_save_s_ < 0 ? first_save_s_ : longest_save_s_;
  return 2 * save_s + 2 * longest_step_s_ + std::min(60.0, 0.05 * max_s_);
}

bool TimeLimit::is_due(double process_s) const {
  return max_s_ > 0 && max_s_ - process_s < margin_s();
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
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - start_s;
}

}  // namespace finetune::train
