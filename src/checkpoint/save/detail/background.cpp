// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save/detail/background.hpp"

#include <pthread.h>

#include <csignal>
#include <utility>

#include "trace/recorder.hpp"

namespace finetune::checkpoint {
namespace {

/// Signals that ask a run to stop are the main thread's: it must not sleep through one because this
/// thread was given it.
void leave_signals_to_others() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

Background::Background(Work work) : state_(std::make_shared<State>()) {
  thread_ = std::jthread([state = state_, work = std::move(work)](const std::stop_token& stop) {
    leave_signals_to_others();
    const trace::Span span("checkpoint", "write");
    try {
      work(stop);
    } catch (...) {
      state->error = std::current_exception();
    }
    state->is_finished = true;
  });
}

void Background::finish() {
  if (thread_.joinable()) thread_.join();
  if (state_ && state_->error) std::rethrow_exception(state_->error);
}

}  // namespace finetune::checkpoint
