#pragma once
// SPDX-License-Identifier: Apache-2.0
// The CUDA stream that collectives run on, next to the one that computes.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/group.hpp"

namespace finetune::comm {

/// A CUDA stream of its own that all groups of a rank share, so that their collectives run in the
/// order they were started. Made once a rank, after its device was chosen (device.hpp); used by one
/// thread at a time. A thread of its own puts collectives on it; another watches what runs on it,
/// and informs the rank's Activity. Streams are cudaStream_t.
///
/// Throws, from any call: ErrorKind::environment if CUDA reports an error, and in builds without
/// it.
class DeviceStream {
 public:
  /// `compute_stream` returns the stream that computes, asked each time it matters.
  explicit DeviceStream(std::function<void*()> compute_stream);
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  void* stream() const;

  /// Puts on the stream what `enqueue` puts there, behind what the computing stream holds now, and
  /// names it: `collective` (a name that lives for ever) of the ranks of `comm`, to whom this one
  /// sends `bytes`. A thread of the stream calls `enqueue`, in the order of these calls: NCCL makes
  /// a thread for each call of a communicator that does not block, and says when it is done only if
  /// it is asked, so that it would hold the computation up for 0.1 ms and more. If `enqueue`
  /// throws, all groups are aborted. Throws the first error that was found since the last call.
  Ticket start(const char* collective, const Communicator& comm, std::int64_t bytes,
               std::function<void()> enqueue);

  /// The ticket of what `release` will start: that is called before anything else is started or
  /// waited for.
  Ticket hold_back(std::function<void()> release);
  /// Starts what is held back, if anything is.
  void release();
  /// Forgets it.
  void drop();

  /// Returns when `enqueue` has returned for everything that was started. Does not throw.
  void settle() noexcept;

  /// Stretches of time that the computing stream waited, still to be measured: begin and end.
  using Stalls = std::vector<std::pair<void*, void*>>;

  /// What is put on the computing stream from now on runs after `ticket`; adds to `stalls` unless
  /// it is done already. The host does not wait.
  void make_compute_wait(Ticket ticket, Stalls& stalls);

  /// Seconds of the stalls that are over; those that are not stay.
  double take_s(Stalls& stalls);

  /// Returns when the stream is empty. Meanwhile looks for errors of all groups again and again,
  /// since a collective that lost a rank would never end.
  void synchronize();

  /// `check` throws if the group `owner` met an error, and `abort` ends what it started; threads of
  /// the stream call them too.
  void add_group(const void* owner, std::function<void()> check, std::function<void()> abort);
  void remove_group(const void* owner);

  /// Aborts all groups and returns when nothing runs on the stream any more.
  void abandon();

 private:
  struct Events;

  std::function<void*()> compute_stream_;
  std::unique_ptr<Events> events_;
  std::function<void()> held_back_;
};

}  // namespace finetune::comm
