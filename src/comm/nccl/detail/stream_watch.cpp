// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/detail/stream_watch.hpp"

#include <chrono>
#include <utility>
#include <vector>

namespace finetune::comm {
namespace {

// Seldom enough to leave the driver to the thread that computes, often enough for a watchdog.
constexpr std::chrono::milliseconds look_interval{1};

void enter(StreamWatch::Mark& mark) {
  mark.is_entered = true;
  if (mark.activity != nullptr)
    mark.entry = mark.activity->enter(Track::stream, mark.collective, mark.axis, mark.details);
}

void leave(const StreamWatch::Mark& mark) {
  if (mark.activity != nullptr) mark.activity->leave(mark.entry);
}

}  // namespace

StreamWatch::StreamWatch(Device device) : device_(std::move(device)), thread_([this] { run(); }) {}

StreamWatch::~StreamWatch() {
  stop();
  if (!marks_.empty() && marks_.front().is_entered) leave(marks_.front());
}

void StreamWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StreamWatch::add_group(const void* owner, std::function<void()> check,
                            std::function<void()> abort) {
  const std::lock_guard lock(mutex_);
  groups_[owner] = {std::move(check), std::move(abort)};
}

void StreamWatch::remove_group(const void* owner) {
  const std::lock_guard lock(mutex_);
  groups_.erase(owner);
}

void StreamWatch::add(Mark mark) {
  {
    const std::lock_guard lock(mutex_);
    marks_.push_back(std::move(mark));
  }
  changed_.notify_all();
}

std::optional<void*> StreamWatch::pending(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  if (marks_.empty() || ticket < marks_.front().ticket) return std::nullopt;
  return marks_[static_cast<std::size_t>(ticket - marks_.front().ticket)].end;
}

void StreamWatch::look() {
  look_or_give_up();
  throw_if_failed();
}

void StreamWatch::throw_if_failed() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void StreamWatch::look_or_give_up() {
  try {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    // First: a group knows more about a broken collective than the device does.
    for (const auto& [owner, group] : groups_)
      group.check();
    advance();
  } catch (...) {
    give_up(std::current_exception());
  }
}

/// Enters and leaves every collective, also one that came and went between two looks: whoever
/// judges compares the ranks' counts.
void StreamWatch::advance() {
  while (!marks_.empty()) {
    Mark& oldest = marks_.front();
    if (!oldest.is_entered) {
      // What waits for this rank's own computation is not late yet.
      if (!device_.is_done(oldest.begin)) return;
      enter(oldest);
    }
    if (!device_.is_done(oldest.end)) return;
    // By the device's clock: this thread looks too seldom to know.
    if (oldest.is_timed && oldest.activity != nullptr)
      oldest.activity->link_rates().add(oldest.axis, oldest.details.first_rank,
                                        oldest.details.num_ranks, oldest.details.bytes,
                                        device_.time_s(oldest));
    leave(oldest);
    device_.give_back(oldest);
    marks_.pop_front();
  }
}

void StreamWatch::give_up(std::exception_ptr error) {
  std::vector<std::function<void()>> aborts;
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    for (const auto& [owner, group] : groups_)
      aborts.push_back(group.abort);
  }
  std::vector<std::thread> threads;
  for (const std::function<void()>& abort : aborts) {
    threads.emplace_back([this, &abort] {
      try {
        device_.use();
      } catch (...) {
        // The device is lost, then; there is all the more reason to abort.
      }
      abort();
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

void StreamWatch::run() {
  try {
    device_.use();
  } catch (...) {
    give_up(std::current_exception());
  }
  std::unique_lock lock(mutex_);
  while (!is_closing_) {
    if (marks_.empty() || error_) {
      changed_.wait(lock);
      continue;
    }
    lock.unlock();
    look_or_give_up();
    lock.lock();
    changed_.wait_for(lock, look_interval, [&] { return is_closing_; });
  }
}

}  // namespace finetune::comm
