// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/mpi_group.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "comm/activity.hpp"
#include "comm/detail/handle.hpp"
#include "comm/mpi/detail/pairwise.hpp"
#include "comm/mpi/detail/shared_window.hpp"
#include "comm/mpi/detail/sums.hpp"
#include "comm/mpi/detail/two_level.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "trace/recorder.hpp"

namespace finetune::comm {
namespace {

/// A sum over parts of `count` elements, `total` in all: its shape alone.
Exchange shape_of(core::DType dtype, std::int64_t count, std::int64_t total) {
  return {.count = count,
          .element_bytes = core::size_bytes(dtype),
          .sum_bytes = sum_bytes(dtype),
          .order = dtype == core::DType::i64 ? Order::any : Order::fixed,
          .num_elements = total};
}

/// The sum of that shape of what lies in `whole` on each rank.
Exchange exchange_of(core::DType dtype, const std::byte* whole, Exchange shape, Sum& sum) {
  shape.sums = sum.sums();
  shape.pack = [whole, count = shape.count, element = shape.element_bytes](
                   int to, std::int64_t offset, std::int64_t n, std::byte* wire) {
    std::memcpy(wire, whole + (to * count + offset) * element,
                static_cast<std::size_t>(n * element));
  };
  shape.add = [dtype](const std::byte* wire, std::int64_t n, std::byte* sums) {
    add_terms(dtype, wire, n, sums);
  };
  return shape;
}

}  // namespace

MpiGroup::MpiGroup(const Communicator& comm, std::shared_ptr<Worker> worker)
    : MpiGroup(comm, std::move(worker), Options()) {}

MpiGroup::MpiGroup(const Communicator& comm, std::shared_ptr<Worker> worker, const Options& options)
    // Its own context: the thread that computes may use `comm` at the same time.
    : comm_(comm.dup(comm.name())), worker_(std::move(worker)) {
  if (comm_.handle_) set_up_levels(options);
}

MpiGroup::~MpiGroup() {
  // Work that was posted refers to this group, and to the memory it shares.
  if (std::uncaught_exceptions() > 0) {
    static_cast<void>(two_level_.release());
    return;
  }
  try {
    worker_->wait_all();
  } catch (...) {
    // Whoever waited for it has heard of it.
  }
}

/// The same collectives on every rank of the job, whatever its node: the watchdog counts them.
void MpiGroup::set_up_levels(const Options& options) {
  levels_ = options.levels;
  std::vector<std::int64_t> nodes(static_cast<std::size_t>(size()));
  const std::int64_t own = comm_.node();
  comm_.all_gather(core::DType::i64, &own, nodes.data(), 1);
  for (int rank = 0; rank < size(); ++rank)
    if (nodes[static_cast<std::size_t>(rank)] != own) ranks_elsewhere_.push_back(rank);

  const Communicator node =
      comm_.split(static_cast<int>(own), rank(), "node", Communicator::Watched::no);
  const auto map = NodeMap::make(nodes, rank());
  const bool is_wanted = map.has_value() && levels_ != Options::Levels::one;
  std::unique_ptr<SharedWindow> window;
  if (is_wanted) {
    const std::int64_t half = options.window_half_bytes > 0 ? options.window_half_bytes
                                                            : window_half_bytes(map->num_nodes());
    window = SharedWindow::make(node, half, why_one_level_);
  }
  const bool is_missing = is_wanted && window == nullptr;
  const bool is_missing_anywhere = comm_.all_reduce(std::int64_t{is_missing}, Reduce::max) != 0;
  if (is_wanted && !is_missing_anywhere)
    two_level_ = std::make_unique<TwoLevel>(*map, std::move(window));
}

bool MpiGroup::adds_in_two_levels(const Exchange& exchange) const {
  if (two_level_ == nullptr || levels_ == Options::Levels::two) return two_level_ != nullptr;
  return num_sums_between_nodes(two_level_->map(), exchange.order) * exchange.sum_bytes <
         num_terms_between_nodes(two_level_->map()) * exchange.element_bytes;
}

void MpiGroup::run_gather(const PointToPoint& messages, const Parts& parts) {
  if (two_level_ != nullptr) {
    two_level_->gather(messages, parts);
  } else {
    gather_pairwise(messages, parts);
  }
}

void MpiGroup::run_exchange(const PointToPoint& messages, const Exchange& exchange) {
  if (adds_in_two_levels(exchange)) {
    two_level_->exchange(messages, exchange);
  } else {
    exchange_pairwise(messages, exchange);
  }
}

void MpiGroup::count(const Parts& parts) {
  const std::int64_t own = size_of_part(parts.part_bytes, parts.total_bytes, rank());
  Moved moved{.between_nodes = own * std::ssize(ranks_elsewhere_),
              .inside = own * (size() - 1 - std::ssize(ranks_elsewhere_))};
  if (two_level_ != nullptr) moved = two_level_->moved_by_gather(parts, rank());
  traffic_.sent_bytes += moved.between_nodes + moved.inside;
  traffic_.to_other_nodes_bytes += moved.between_nodes;
}

void MpiGroup::count(const Exchange& exchange) {
  Moved moved;
  if (adds_in_two_levels(exchange)) {
    moved = two_level_->moved_by_exchange(exchange, rank());
  } else {
    const std::int64_t total = exchange.total(size());
    for (const int to : ranks_elsewhere_)
      moved.between_nodes += size_of_part(exchange.count, total, to) * exchange.element_bytes;
    const std::int64_t to_all = total - size_of_part(exchange.count, total, rank());
    moved.inside = to_all * exchange.element_bytes - moved.between_nodes;
  }
  traffic_.sent_bytes += moved.between_nodes + moved.inside;
  traffic_.to_other_nodes_bytes += moved.between_nodes;
}

void MpiGroup::count(std::span<const std::int64_t> send_bytes) {
  for (int to = 0; to < size(); ++to)
    if (to != rank()) traffic_.sent_bytes += send_bytes[static_cast<std::size_t>(to)];
  for (const int to : ranks_elsewhere_)
    traffic_.to_other_nodes_bytes += send_bytes[static_cast<std::size_t>(to)];
}

Ticket MpiGroup::start(const char* name, std::function<void(const PointToPoint&)> work) {
  ++traffic_.collectives;
  std::optional<trace::Span> span;
  if (worker_->is_inline()) span.emplace(trace::main_row, "wait", comm_.name());
  const core::Stopwatch watch;
  Details details =
      comm_.details(traffic_.sent_bytes - std::exchange(told_bytes_, traffic_.sent_bytes));
  details.posted_ns = now_ns();
  const Ticket ticket = worker_->post([this, name, details, work = std::move(work)] {
    MPI_Comm comm = comm_.handle_ ? comm_.handle_->comm : MPI_COMM_NULL;
    const Activity::Scope scope(comm_.activity(), Track::stream, name, comm_.name(), details);
    const core::Stopwatch since_begin;
    work(PointToPoint(comm, *worker_, comm_.rank(), comm_.size()));
    if (Activity* activity = comm_.activity())
      activity->link_rates().add(comm_.name(), details.first_rank, details.num_ranks, details.bytes,
                                 since_begin.seconds());
  });
  if (worker_->is_inline()) exposed_s_ += watch.seconds();
  return ticket;
}

Ticket MpiGroup::all_gather(core::DType dtype, const void* shard, void* full, std::int64_t count) {
  const std::int64_t bytes = count * core::size_bytes(dtype);
  const auto* own = static_cast<const std::byte*>(shard);
  const Parts parts{static_cast<std::byte*>(full), bytes, bytes * size()};
  this->count(parts);
  return start("all_gather", [=, this](const PointToPoint& messages) {
    if (bytes == 0) return;
    std::byte* own_part = parts.whole + messages.rank() * bytes;
    if (own_part != own) std::memcpy(own_part, own, static_cast<std::size_t>(bytes));
    run_gather(messages, parts);
  });
}

Ticket MpiGroup::reduce_scatter(core::DType dtype, const void* full, void* shard,
                                std::int64_t count) {
  const auto* whole = static_cast<const std::byte*>(full);
  const Exchange shape = shape_of(dtype, count, count * size());
  this->count(shape);
  return start("reduce_scatter", [=, this](const PointToPoint& messages) {
    Sum sum(dtype, shard, count);
    run_exchange(messages, exchange_of(dtype, whole, shape, sum));
    sum.finish();
  });
}

Ticket MpiGroup::all_reduce(core::DType dtype, void* values, std::int64_t count) {
  auto* whole = static_cast<std::byte*>(values);
  // Every rank sums one part and gives it to the others; the last parts may be short or empty.
  const Exchange shape = shape_of(dtype, (count + size() - 1) / size(), count);
  const Parts parts{whole, shape.count * shape.element_bytes, count * shape.element_bytes};
  this->count(shape);
  this->count(parts);
  return start("all_reduce", [=, this](const PointToPoint& messages) {
    if (messages.size() == 1 || count == 0) return;
    Sum sum(dtype, whole + messages.rank() * parts.part_bytes,
            size_of_part(shape.count, count, messages.rank()));
    run_exchange(messages, exchange_of(dtype, whole, shape, sum));
    sum.finish();
    run_gather(messages, parts);
  });
}

Ticket MpiGroup::all_to_all(const void* send, std::span<const std::int64_t> send_bytes, void* recv,
                            std::span<const std::int64_t> recv_bytes) {
  Swap swap(static_cast<const std::byte*>(send), send_bytes, static_cast<std::byte*>(recv),
            recv_bytes);
  swap.check(rank(), size());
  count(send_bytes);
  return start("all_to_all", [swap = std::move(swap)](const PointToPoint& messages) {
    swap_pairwise(messages, swap);
  });
}

Ticket MpiGroup::exchange(Exchange exchange) {
  count(exchange);
  return start("reduce_scatter",
               [this, exchange = std::move(exchange)](const PointToPoint& messages) {
                 run_exchange(messages, exchange);
               });
}

void MpiGroup::wait(Ticket ticket) {
  if (ticket == nothing_started) return;
  const trace::Span span(trace::main_row, "wait", comm_.name());
  const core::Stopwatch watch;
  worker_->wait(ticket);
  exposed_s_ += watch.seconds();
}

void MpiGroup::synchronize() {
  const trace::Span span(trace::main_row, "wait", comm_.name());
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
