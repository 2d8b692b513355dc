#pragma once
// SPDX-License-Identifier: Apache-2.0
// Work on a thread of its own, asked after by the thread that began it.

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <stop_token>
#include <thread>

namespace finetune::checkpoint {

/// Runs one function. Neither MPI nor HDF5 may be called in it. Destroying it asks the function to
/// stop and waits until it has.
class Background {
 public:
  using Work = std::function<void(const std::stop_token&)>;

  /// Nothing to do, so finished.
  Background() = default;
  explicit Background(Work work);

  bool is_finished() const { return !state_ || state_->is_finished; }

  /// Waits for the end. Throws what the function threw.
  void finish();

 private:
  struct State {
    std::atomic<bool> is_finished = false;
    std::exception_ptr error;
  };

  std::shared_ptr<State> state_;
  std::jthread thread_;
};

}  // namespace finetune::checkpoint
