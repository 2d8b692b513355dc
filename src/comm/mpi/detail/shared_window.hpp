#pragma once
// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of a node share, and who has written and read what.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "comm/mpi/detail/point_to_point.hpp"

namespace finetune::comm {

/// One segment of POSIX shared memory with a slice for each rank of a node. Slices are written in
/// frames, counted from 0 over the life of the window, on two halves in turn: frame f is laid into
/// half f % 2, published, read by all others and marked as read. Every rank takes part in every
/// frame. Nobody is ever two frames ahead, so there are no other locks and no barriers.
///
/// Not MPI_Win_allocate_shared: what it needs is only found missing when a page is touched, by
/// SIGBUS, and freeing it is collective, which a run that ends by an error cannot do. This segment
/// has no name any more once all ranks hold it, so that it goes with the last of them, however they
/// end.
class SharedWindow {
 public:
  /// Collective on `node`, whose ranks all get a window or all nothing, with the reason in `why`.
  static std::unique_ptr<SharedWindow> make(const Communicator& node, std::int64_t half_bytes,
                                            std::string& why);
  ~SharedWindow();
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  std::int64_t half_bytes() const { return half_bytes_; }

  /// The half of this frame in the slice of the rank at `position`.
  std::byte* half(int position, std::int64_t frame) const;

  /// The frame after the last. Returns when everybody has read what its half held.
  std::int64_t begin_frame(const PointToPoint& messages);
  /// This rank's half of the frame is complete. Frames are published in their order.
  void publish(std::int64_t frame);
  /// Returns when the half of the rank at `position` is complete.
  void wait_for(const PointToPoint& messages, int position, std::int64_t frame) const;
  /// This rank needs nothing of `frame` any more. Frames are read in their order.
  void mark_read(std::int64_t frame);

  /// From now on the memory stays until the process ends: MPI may still write to it.
  void leave_behind() { is_left_ = true; }

 private:
  /// Of each rank, on cache lines of their own: frames so far.
  struct Progress {
    alignas(64) std::atomic<std::int64_t> published;
    alignas(64) std::atomic<std::int64_t> read;
  };
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);

  SharedWindow(void* memory, std::size_t bytes, int position, int num_ranks,
               std::int64_t half_bytes);
  Progress& progress(int position) const;

  std::byte* memory_;
  std::size_t bytes_;
  int position_;
  int num_ranks_;
  std::int64_t half_bytes_;
  std::int64_t num_begun_ = 0;
  bool is_left_ = false;
};

}  // namespace finetune::comm
