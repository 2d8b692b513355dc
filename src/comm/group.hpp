#pragma once
// SPDX-License-Identifier: Apache-2.0
// Collectives that run behind the computation: one group a mesh axis, over MPI or NCCL.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "comm/communicator.hpp"
#include "comm/detail/node_map.hpp"
#include "core/dtype.hpp"

namespace finetune::comm {

/// Names a collective that was started; `wait` for it before its memory is touched again.
using Ticket = std::int64_t;
inline constexpr Ticket nothing_started = 0;

/// What a group has moved so far.
struct Traffic {
  std::int64_t collectives = 0;
  /// By this rank to others: in messages, and in memory that its node shares, each byte once.
  std::int64_t sent_bytes = 0;
  /// Of them, those that went to other nodes; -1 where only NCCL knows.
  std::int64_t to_other_nodes_bytes = 0;
};

/// A sum whose terms are packed for the wire just before they leave and added just after they
/// arrive, piece by piece, so that no second copy of the whole is needed. Host memory only.
///
/// Each rank has the sums of one part. Where parts are of different sizes, the last are the short
/// ones.
struct Exchange {
  std::int64_t count = 0;          ///< elements of a part
  std::int64_t element_bytes = 4;  ///< of an element on the wire
  std::int64_t sum_bytes = 4;      ///< of an element of `sums`
  Order order = Order::fixed;      ///< any: elements on the wire are of the sums' dtype
  std::byte* sums = nullptr;       ///< of this rank's part; terms are added to what they hold
  std::int64_t num_elements = -1;  ///< of all parts; -1: each has `count`
  /// Writes elements [offset, offset + n) of what rank `to` shall add.
  std::function<void(int to, std::int64_t offset, std::int64_t n, std::byte* wire)> pack = {};
  /// Adds n elements that a rank packed to n running sums, of whichever part. The terms of an
  /// element come in one order, whatever the timing and wherever the ranks are.
  std::function<void(const std::byte* wire, std::int64_t n, std::byte* sums)> add = {};

  std::int64_t total(int num_ranks) const {
    return num_elements >= 0 ? num_elements : num_ranks * count;
  }
};

/// The ranks of one mesh axis. Collectives are started in the same order on every rank, over all
/// groups that share a stream (a thread for MPI, a CUDA stream for NCCL), and run in that order.
/// What is read and written must stay alive and untouched until `wait` returns. Counts are
/// elements. On a device everything is ordered behind what the current CUDA stream holds when the
/// collective is started, and `wait` makes that stream wait, not the host.
///
/// Throws, from any call: ErrorKind::environment if MPI or NCCL reports an error.
class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  virtual const Communicator& communicator() const = 0;
  int rank() const { return communicator().rank(); }
  int size() const { return communicator().size(); }

  /// Shapes: shard [count] -> full [size() * count], in rank order. Any dtype.
  [[nodiscard]] virtual Ticket all_gather(core::DType dtype, const void* shard, void* full,
                                          std::int64_t count) = 0;
  /// Sums over ranks. Shapes: full [size() * count] -> shard [count]. f32, bf16, f16, i64.
  [[nodiscard]] virtual Ticket reduce_scatter(core::DType dtype, const void* full, void* shard,
                                              std::int64_t count) = 0;
  /// Sums over ranks, in place; the result is bitwise identical on every rank. f32, bf16, f16, i64.
  [[nodiscard]] virtual Ticket all_reduce(core::DType dtype, void* values, std::int64_t count) = 0;
  /// Rank r gets bytes [sum of send_bytes before r, + send_bytes[r]) of `send`; what comes from
  /// rank r lies at the same place of `recv` by `recv_bytes`. Spans are of size() numbers, and are
  /// read before this returns; recv_bytes[r] is what rank r sends here. Where it is 0, nothing
  /// travels, and neither rank waits for the other. With itself a rank copies.
  [[nodiscard]] virtual Ticket all_to_all(const void* send,
                                          std::span<const std::int64_t> send_bytes, void* recv,
                                          std::span<const std::int64_t> recv_bytes) = 0;
  /// Host memory only.
  [[nodiscard]] virtual Ticket exchange(Exchange exchange) = 0;

  /// Runs `f`. The collectives of this group that it starts belong together: where the backend can,
  /// they begin as one and end as one, in any order among themselves, when `f` returns or waits for
  /// one of them. Every rank starts the same ones together.
  virtual void together(const std::function<void()>& f) { f(); }

  /// Memory that collectives of this group will use again and again, until `forget`, which comes
  /// before it is freed. The backend may prepare it. Device memory; not collective.
  virtual void remember(void* /*memory*/, std::int64_t /*bytes*/) {}
  virtual void forget(void* /*memory*/) {}

  /// Returns when the collective is done (on a device: makes the current stream wait for it).
  virtual void wait(Ticket ticket) = 0;
  /// Returns when everything that was started is done, on the host's clock.
  virtual void synchronize() = 0;

  /// Gives up what was started: the run ends by an error, and other ranks may never come. When it
  /// returns, no memory is touched any more.
  virtual void abandon() {}

  virtual Traffic traffic() const = 0;
  /// Seconds that computation stood still in `wait` since the last call. On a device: after
  /// `synchronize`.
  virtual double take_exposed_s() = 0;

 protected:
  Group() = default;
};

}  // namespace finetune::comm
