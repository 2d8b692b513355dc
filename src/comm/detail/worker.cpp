// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/worker.hpp"

#include <utility>

namespace finetune::comm {

Worker::Worker(Where where) : where_(where) {
  if (where == Where::behind) thread_ = std::thread([this] { run(); });
}

Worker::~Worker() {
  close(std::uncaught_exceptions() > 0 ? Leave::at_once : Leave::when_done);
}

void Worker::abandon() {
  close(Leave::at_once);
}

void Worker::close(Leave leave) {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    if (leave == Leave::at_once || error_) abandoned_ = true;
  }
  posted_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::int64_t Worker::post(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  queue_.push_back(std::move(work));
  const std::int64_t ticket = ++num_posted_;
  if (is_inline()) {
    do_next(lock);
    if (error_) std::rethrow_exception(error_);
  } else {
    posted_.notify_one();
  }
  return ticket;
}

void Worker::wait(std::int64_t ticket) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return num_done_ >= ticket || error_; });
  if (error_) std::rethrow_exception(error_);
}

void Worker::wait_all() {
  std::int64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = num_posted_;
  }
  wait(last);
}

bool Worker::is_done(std::int64_t ticket) const {
  const std::lock_guard lock(mutex_);
  return num_done_ >= ticket;
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    posted_.wait(lock, [&] { return !queue_.empty() || is_closing_; });
    if (queue_.empty() || abandoned_) return;
    do_next(lock);
  }
}

void Worker::do_next(std::unique_lock<std::mutex>& lock) {
  const std::function<void()> work = std::move(queue_.front());
  queue_.pop_front();
  std::exception_ptr error = error_;
  lock.unlock();
  // After an error the rest is not done: it would meet the same one, or wait for ever.
  if (!error) {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  }
  lock.lock();
  error_ = error;
  ++num_done_;
  finished_.notify_all();
}

}  // namespace finetune::comm
