// SPDX-License-Identifier: Apache-2.0
#include "train/stop.hpp"

#include <csignal>

namespace finetune::train {
namespace {

// A handler can reach nothing but this.
volatile std::sig_atomic_t asked = 0;

void remember(int signal) {
  asked = 1;
  // A user who asks twice does not want to wait for the checkpoint.
  if (signal == SIGTERM) std::signal(SIGTERM, SIG_DFL);
}

}  // namespace

void watch_signals() {
  std::signal(SIGUSR1, remember);
  std::signal(SIGTERM, remember);
}

bool stop_is_asked() {
  return asked != 0;
}

}  // namespace finetune::train
