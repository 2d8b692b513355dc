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
/// thread at a time. A thread of its own watches what runs on it, and informs the rank's
/// Activity. Streams are cudaStream_t.
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

  /// What is put on the stream from now on runs after what the computing stream holds now.
  void follow_compute();

  /// Names what was put on the stream since `follow_compute`: `collective` (a name that lives for
  /// ever) of the ranks of `comm`.
  Ticket mark(const char* collective, const Communicator& comm);

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

  /// Runs `f`. If it throws, or an error was found since the last call, aborts all groups and
  /// throws the first error.
  void run(const std::function<void()>& f);

  /// Aborts all groups and returns when nothing runs on the stream any more.
  void abandon();

 private:
  struct Events;

  std::function<void*()> compute_stream_;
  std::unique_ptr<Events> events_;
};

}  // namespace finetune::comm
