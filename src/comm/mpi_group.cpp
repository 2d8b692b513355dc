// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_group.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "comm/activity.hpp"
#include "comm/handle.hpp"
#include "comm/sums.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace finetune::comm {
namespace {

// Elements of an exchange that are packed, sent and added together: large enough for full
// bandwidth, small enough to stay in cache between packing and sending.
constexpr std::int64_t piece_elements = std::int64_t{1} << 18;
// Pieces on their way at once: one is sent while the next is packed.
constexpr std::size_t window = 2;
constexpr std::int64_t largest_message_bytes = std::int64_t{1} << 30;
constexpr int tag = 1;

/// Waits shorter and shorter on the processor: first looks again at once, then lets others run,
/// then sleeps. The computation needs the core more than a message needs to be noticed.
class Patience {
 public:
  void wait() {
    ++looks_;
    if (looks_ < 20) return;
    if (looks_ < 60) {
      ::sched_yield();
      return;
    }
    const timespec pause{.tv_sec = 0, .tv_nsec = 30'000};
    ::nanosleep(&pause, nullptr);
  }

 private:
  int looks_ = 0;
};

/// Keeps what `owner` holds from being freed while an exception unwinds.
template <typename T>
class Leak {
 public:
  explicit Leak(std::unique_ptr<T>& owner) : owner_(owner) {}
  ~Leak() {
    if (std::uncaught_exceptions() > 0) owner_.release();
  }
  Leak(const Leak&) = delete;
  Leak& operator=(const Leak&) = delete;

 private:
  std::unique_ptr<T>& owner_;
};

}  // namespace

/// Messages between this rank and the others, on the worker's thread.
class MpiGroup::Rounds {
 public:
  Rounds(MPI_Comm comm, const Worker& worker, int rank, int size)
      : comm_(comm), worker_(worker), rank_(rank), size_(size) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  int to(int round) const { return (rank_ + round) % size_; }
  int from(int round) const { return (rank_ - round + size_) % size_; }

  MPI_Request send(const void* data, std::int64_t bytes, int to) const {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm_, &request),
              "MPI_Isend");
    return request;
  }
  MPI_Request receive(void* data, std::int64_t bytes, int from) const {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, comm_, &request),
              "MPI_Irecv");
    return request;
  }

  /// Returns when all of them are done.
  void finish(std::span<MPI_Request> requests) const {
    Patience patience;
    for (;;) {
      int is_done = 0;
      check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &is_done,
                            MPI_STATUSES_IGNORE),
                "MPI_Testall");
      if (is_done != 0) return;
      core::check(!worker_.is_abandoned(), "the run ends while ranks communicate");
      patience.wait();
    }
  }
  void finish(MPI_Request& request) const { finish(std::span(&request, 1)); }

  /// Sends `bytes` of `own` to every rank, receives theirs at part(rank). Not for this rank.
  template <typename Part>
  void gather(const std::byte* own, std::int64_t own_bytes, const Part& part) const {
    for (int round = 1; round < size_; ++round) {
      const auto [target, bytes] = part(from(round));
      std::int64_t sent = 0;
      std::int64_t received = 0;
      while (sent < own_bytes || received < bytes) {
        std::array<MPI_Request, 2> both = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        const std::int64_t in = std::min(bytes - received, largest_message_bytes);
        const std::int64_t out = std::min(own_bytes - sent, largest_message_bytes);
        if (in > 0) both[0] = receive(target + received, in, from(round));
        if (out > 0) both[1] = send(own + sent, out, to(round));
        finish(both);
        received += in;
        sent += out;
      }
    }
  }

  /// This rank's own terms come first.
  void exchange(const Exchange& exchange) const;

 private:
  MPI_Comm comm_;
  const Worker& worker_;
  int rank_;
  int size_;
};

void MpiGroup::Rounds::exchange(const Exchange& e) const {
  struct Staging {
    std::array<std::vector<std::byte>, window> out, in;
    std::array<MPI_Request, window> sending, receiving;
  };
  const std::int64_t piece = std::min(piece_elements, std::max<std::int64_t>(1, e.count));
  const auto piece_bytes = static_cast<std::size_t>(piece * e.element_bytes);
  const std::int64_t num_pieces = (e.count + piece - 1) / piece;
  // Left behind where the exchange is given up: MPI may still write to it.
  auto staging = std::make_unique<Staging>();
  auto& [out, in, sending, receiving] = *staging;
  const Leak leak(staging);
  sending.fill(MPI_REQUEST_NULL);
  receiving.fill(MPI_REQUEST_NULL);
  for (std::size_t slot = 0; slot < window; ++slot) {
    out[slot].resize(piece_bytes);
    in[slot].resize(piece_bytes);
  }
  const auto offset_of = [&](std::int64_t k) { return k % num_pieces * piece; };
  const auto count_of = [&](std::int64_t k) { return std::min(piece, e.count - offset_of(k)); };

  for (std::int64_t k = 0; k < num_pieces; ++k) {
    e.pack(rank_, offset_of(k), count_of(k), out[0].data());
    e.add(out[0].data(), offset_of(k), count_of(k));
  }
  // Message k is piece k % num_pieces of round 1 + k / num_pieces; it is added while the next one
  // is on its way.
  const std::int64_t num_messages = (size_ - 1) * num_pieces;
  const auto add = [&](std::int64_t k) {
    const std::size_t slot = static_cast<std::size_t>(k) % window;
    finish(receiving[slot]);
    e.add(in[slot].data(), offset_of(k), count_of(k));
  };
  for (std::int64_t k = 0; k < num_messages; ++k) {
    const int round = 1 + static_cast<int>(k / num_pieces);
    const std::size_t slot = static_cast<std::size_t>(k) % window;
    const std::int64_t bytes = count_of(k) * e.element_bytes;
    receiving[slot] = receive(in[slot].data(), bytes, from(round));
    finish(sending[slot]);
    e.pack(to(round), offset_of(k), count_of(k), out[slot].data());
    sending[slot] = send(out[slot].data(), bytes, to(round));
    if (k > 0) add(k - 1);
  }
  if (num_messages > 0) add(num_messages - 1);
  finish(sending);
}

MpiGroup::MpiGroup(const Communicator& comm, std::shared_ptr<Worker> worker)
    // Its own context: the thread that computes may use `comm` at the same time.
    : comm_(comm.dup(comm.name())), worker_(std::move(worker)) {}

MpiGroup::~MpiGroup() {
  // Work that was posted refers to this group.
  if (std::uncaught_exceptions() > 0) return;
  try {
    worker_->wait_all();
  } catch (...) {
    // Whoever waited for it has heard of it.
  }
}

Ticket MpiGroup::start(const char* name, std::int64_t sent_bytes,
                       std::function<void(Rounds&)> work) {
  ++traffic_.collectives;
  traffic_.sent_bytes += sent_bytes;
  const core::Stopwatch watch;
  const Ticket ticket = worker_->post([this, name, work = std::move(work)] {
    MPI_Comm comm = comm_.handle_ ? comm_.handle_->comm : MPI_COMM_NULL;
    const Activity::Scope scope(comm_.activity(), Track::stream, name, comm_.name());
    Rounds rounds(comm, *worker_, comm_.rank(), comm_.size());
    work(rounds);
  });
  if (worker_->is_inline()) exposed_s_ += watch.seconds();
  return ticket;
}

Ticket MpiGroup::all_gather(core::DType dtype, const void* shard, void* full, std::int64_t count) {
  const std::int64_t bytes = count * core::size_bytes(dtype);
  const auto* own = static_cast<const std::byte*>(shard);
  auto* whole = static_cast<std::byte*>(full);
  return start("all_gather", bytes * (size() - 1), [=](Rounds& rounds) {
    if (bytes == 0) return;
    std::byte* own_part = whole + rounds.rank() * bytes;
    if (own_part != own) std::memcpy(own_part, own, static_cast<std::size_t>(bytes));
    rounds.gather(own_part, bytes,
                  [&](int rank) { return std::pair(whole + rank * bytes, bytes); });
  });
}

Ticket MpiGroup::reduce_scatter(core::DType dtype, const void* full, void* shard,
                                std::int64_t count) {
  const std::int64_t element = core::size_bytes(dtype);
  const auto* whole = static_cast<const std::byte*>(full);
  return start("reduce_scatter", count * element * (size() - 1), [=](Rounds& rounds) {
    Sum sum(dtype, shard, count);
    const auto pack = [&](int to, std::int64_t offset, std::int64_t n, std::byte* wire) {
      std::memcpy(wire, whole + (to * count + offset) * element,
                  static_cast<std::size_t>(n * element));
    };
    const auto add = [&](const std::byte* wire, std::int64_t offset, std::int64_t n) {
      sum.add(wire, offset, n);
    };
    rounds.exchange({count, element, pack, add});
    sum.finish();
  });
}

Ticket MpiGroup::all_reduce(core::DType dtype, void* values, std::int64_t count) {
  const std::int64_t element = core::size_bytes(dtype);
  auto* whole = static_cast<std::byte*>(values);
  // Every rank sums one part and gives it to the others; the last parts may be short or empty.
  const std::int64_t part = (count + size() - 1) / size();
  const auto size_of = [part, count](int rank) {
    return std::clamp<std::int64_t>(count - rank * part, 0, part);
  };
  const std::int64_t sent = element * (count - size_of(rank()) + (size() - 1) * size_of(rank()));
  return start("all_reduce", sent, [=](Rounds& rounds) {
    if (rounds.size() == 1 || count == 0) return;
    const std::int64_t own = size_of(rounds.rank());
    std::byte* own_part = whole + rounds.rank() * part * element;
    Sum sum(dtype, own_part, own);
    // Parts have one size on the wire; what lies beyond the last element is neither read nor added.
    const auto pack = [&](int to, std::int64_t offset, std::int64_t n, std::byte* wire) {
      const std::int64_t there = std::clamp<std::int64_t>(size_of(to) - offset, 0, n);
      std::memcpy(wire, whole + (to * part + offset) * element,
                  static_cast<std::size_t>(there * element));
    };
    const auto add = [&](const std::byte* wire, std::int64_t offset, std::int64_t n) {
      sum.add(wire, offset, std::clamp<std::int64_t>(own - offset, 0, n));
    };
    rounds.exchange({part, element, pack, add});
    sum.finish();
    rounds.gather(own_part, own * element, [&](int rank) {
      return std::pair(whole + rank * part * element, size_of(rank) * element);
    });
  });
}

Ticket MpiGroup::exchange(Exchange exchange) {
  const std::int64_t sent = exchange.count * exchange.element_bytes * (size() - 1);
  return start("reduce_scatter", sent,
               [exchange = std::move(exchange)](Rounds& rounds) { rounds.exchange(exchange); });
}

void MpiGroup::wait(Ticket ticket) {
  if (ticket == nothing_started) return;
  const core::Stopwatch watch;
  worker_->wait(ticket);
  exposed_s_ += watch.seconds();
}

void MpiGroup::synchronize() {
  const core::Stopwatch watch;
  worker_->wait_all();
  exposed_s_ += watch.seconds();
}

Traffic MpiGroup::traffic() const {
  return traffic_;
}

double MpiGroup::take_exposed_s() {
  return std::exchange(exposed_s_, 0.0);
}

}  // namespace finetune::comm
