#pragma once
// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks, for work that sleeps while it waits.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>

#include "comm/detail/waiting.hpp"
#include "comm/detail/worker.hpp"
#include "comm/mpi/detail/mpi.hpp"

namespace finetune::comm {

/// Keeps what `owner` holds from being freed while an exception unwinds: MPI may still write to it.
template <typename T>
class Leak {
 public:
  explicit Leak(std::unique_ptr<T>& owner) : owner_(owner) {}
  ~Leak() {
    if (std::uncaught_exceptions() > 0) static_cast<void>(owner_.release());
  }
  Leak(const Leak&) = delete;
  Leak& operator=(const Leak&) = delete;

 private:
  std::unique_ptr<T>& owner_;
};

/// Messages between this rank and the others, on the worker's thread.
///
/// Throws, while it waits: ErrorKind::bug once the worker is abandoned.
class PointToPoint {
 public:
  PointToPoint(MPI_Comm comm, const Worker& worker, int rank, int size)
      : comm_(comm), worker_(worker), rank_(rank), size_(size) {}

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Messages of one pair of ranks arrive in the order in which they were sent.
  MPI_Request send(const void* data, std::int64_t bytes, int to) const;
  MPI_Request receive(void* data, std::int64_t bytes, int from) const;

  /// Returns when all of them are done.
  void finish(std::span<MPI_Request> requests) const;
  void finish(MPI_Request& request) const { finish(std::span(&request, 1)); }

  /// Returns when the condition holds, which other threads or processes bring about. Messages that
  /// are on their way move meanwhile.
  template <typename Condition>
  void wait_until(const Condition& holds) const {
    Patience patience;
    while (!holds()) {
      progress();
      patience.wait();
    }
  }

 private:
  void check_wanted() const;
  void progress() const;

  MPI_Comm comm_;
  const Worker& worker_;
  int rank_;
  int size_;
};

}  // namespace finetune::comm
