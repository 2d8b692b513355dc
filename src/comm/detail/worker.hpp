#pragma once
// SPDX-License-Identifier: Apache-2.0
// A thread that does one thing after the other, behind the thread that computes.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace finetune::comm {

/// Work is posted and waited for by one thread and done by another, in the order of posting.
class Worker {
 public:
  enum class Where { behind, inline_ };

  /// `inline_`: `post` does the work itself; there is no thread.
  explicit Worker(Where where);
  /// Does what was posted; while an exception unwinds, or after an error, gives it up instead,
  /// since other ranks may never take their part.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  bool is_inline() const { return where_ == Where::inline_; }

  /// Tickets count from 1. Throws what earlier work threw.
  std::int64_t post(std::function<void()> work);

  /// Returns when the work of `ticket` is done. Throws what it, or work before it, threw.
  void wait(std::int64_t ticket);
  /// Waits for all work.
  void wait_all();
  bool is_done(std::int64_t ticket) const;

  /// Ends the thread without doing what is left.
  void abandon();
  /// For work that polls: true once its result is not wanted any more.
  bool is_abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

 private:
  enum class Leave { when_done, at_once };
  void close(Leave leave);
  void run();
  void do_next(std::unique_lock<std::mutex>& lock);

  Where where_;
  mutable std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable finished_;
  std::deque<std::function<void()>> queue_;
  std::int64_t num_posted_ = 0;
  std::int64_t num_done_ = 0;
  std::exception_ptr error_;
  bool is_closing_ = false;
  std::atomic<bool> abandoned_ = false;
  std::thread thread_;
};

}  // namespace finetune::comm
