#pragma once
// SPDX-License-Identifier: Apache-2.0
// A thread that watches collectives on a device, which the host does not wait for.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/activity.hpp"
#include "comm/group.hpp"

namespace finetune::comm {

/// Knows which collectives a stream still has, informs the rank's Activity which of them runs, and
/// looks for errors meanwhile: the thread that computes may stand in a call that knows nothing of
/// communication. On an error it aborts all groups, so that this call returns, and keeps the error
/// for that thread.
///
/// The thread that launches adds, the one that computes asks, and the watch's own looks too. Knows
/// no CUDA: events are handles.
class StreamWatch {
 public:
  /// A collective on the stream.
  struct Mark {
    Ticket ticket = nothing_started;
    void* begin = nullptr;  ///< event: all that the collective comes after is done
    void* end = nullptr;    ///< event: the collective is done
    Activity* activity = nullptr;
    const char* collective = "";  ///< lives for ever
    std::string axis;
    Details details = {};
    bool is_timed = false;  ///< its events know when they were reached
    bool is_entered = false;
    Activity::Entry entry = {};
  };

  /// How the watch handles events and its thread. Each may be called on either thread.
  struct Device {
    std::function<void()> use;                        ///< first thing on each thread of the watch
    std::function<bool(void* event)> is_done;         ///< may throw
    std::function<double(const Mark& mark)> time_s;   ///< from begin to end, if it is timed
    std::function<void(const Mark& mark)> give_back;  ///< its events are not needed any more
  };

  explicit StreamWatch(Device device);
  /// Does not wait for what is on the stream.
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  /// `check` throws if the group `owner` met an error; `abort` ends its collectives and does not
  /// throw. Both are called on several threads, `abort` perhaps more than once.
  void add_group(const void* owner, std::function<void()> check, std::function<void()> abort);
  void remove_group(const void* owner);

  /// In the order of the stream, tickets one after the other.
  void add(Mark mark);

  /// The end of a collective that is not known to be done.
  std::optional<void*> pending(Ticket ticket);

  /// Looks at groups and events now. Throws what this or an earlier look has found.
  void look();

  /// Keeps `error` unless there is one, and then aborts all groups at once: one of them may not end
  /// before another.
  void give_up(std::exception_ptr error);
  void throw_if_failed();

  /// Ends the thread.
  void stop();

 private:
  struct Watched {
    std::function<void()> check;
    std::function<void()> abort;
  };
  void run();
  void look_or_give_up();
  void advance();

  Device device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<const void*, Watched> groups_;
  std::deque<Mark> marks_;  ///< the first is the oldest that is not known to be done
  std::exception_ptr error_;
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace finetune::comm
