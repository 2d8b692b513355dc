// SPDX-License-Identifier: Apache-2.0
// The collectives of Communicator in which each rank hands bytes of its own to one other rank.

#include <algorithm>

#include "comm/communicator.hpp"
#include "comm/detail/handle.hpp"
#include "comm/detail/waiting.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace finetune::comm {
namespace {

using Bytes = std::vector<std::byte>;

/// MPI counts have 32 bits.
constexpr std::size_t piece_bytes = std::size_t{1} << 30;
constexpr int message_tag = 77;

void add_send(MPI_Comm comm, std::span<const std::byte> bytes, int to,
              std::vector<MPI_Request>& requests) {
  for (std::size_t begin = 0; begin < bytes.size(); begin += piece_bytes) {
    const auto piece = bytes.subspan(begin, std::min(piece_bytes, bytes.size() - begin));
    check_mpi(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to, message_tag,
                        comm, &requests.emplace_back()),
              "MPI_Isend");
  }
}

void add_receive(MPI_Comm comm, std::span<std::byte> bytes, int from,
                 std::vector<MPI_Request>& requests) {
  for (std::size_t begin = 0; begin < bytes.size(); begin += piece_bytes) {
    const auto piece = bytes.subspan(begin, std::min(piece_bytes, bytes.size() - begin));
    check_mpi(MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, from, message_tag,
                        comm, &requests.emplace_back()),
              "MPI_Irecv");
  }
}

Bytes copy(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

template <typename Handle>
Activity::Scope inside(const char* collective, const Handle& handle, const std::string& axis,
                       std::int64_t bytes) {
  if (!handle) return {nullptr, Track::main, collective, axis};
  return {handle->activity.get(),
          Track::main,
          collective,
          axis,
          {.first_rank = handle->first_rank, .num_ranks = handle->size, .bytes = bytes}};
}

}  // namespace

std::vector<Bytes> Communicator::gather_bytes(std::span<const std::byte> bytes) const {
  if (!handle_) return {copy(bytes)};
  const auto scope = inside("gather", handle_, name(), std::ssize(bytes));
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(size()));
  const std::int64_t own = std::ssize(bytes);
  all_gather_inside(core::DType::i64, &own, sizes.data(), 1);
  std::vector<MPI_Request> requests;
  if (!is_root()) {
    add_send(handle_->comm, bytes, 0, requests);
    finish(requests, "MPI_Testall");
    return {};
  }
  std::vector<Bytes> parts(sizes.size());
  parts[0] = copy(bytes);
  for (int from = 1; from < size(); ++from) {
    Bytes& part = parts[static_cast<std::size_t>(from)];
    part.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(from)]));
    add_receive(handle_->comm, part, from, requests);
  }
  finish(requests, "MPI_Testall");
  return parts;
}

std::vector<std::string> Communicator::gather_text(std::string_view text) const {
  std::vector<std::string> texts;
  for (const Bytes& part : gather_bytes(std::as_bytes(std::span(text))))
    texts.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  return texts;
}

Bytes Communicator::shift(std::span<const std::byte> bytes, int distance) const {
  const int to = ((rank() + distance) % size() + size()) % size();
  const int from = ((rank() - distance) % size() + size()) % size();
  // A communicator of one rank tells too: watchdogs compare how many collectives ranks entered.
  const auto scope = inside("shift", handle_, name(), std::ssize(bytes));
  if (to == rank()) return copy(bytes);
  const std::int64_t own = std::ssize(bytes);
  std::int64_t coming = 0;
  std::vector<MPI_Request> requests;
  add_receive(handle_->comm, std::as_writable_bytes(std::span(&coming, 1)), from, requests);
  add_send(handle_->comm, std::as_bytes(std::span(&own, 1)), to, requests);
  finish(requests, "MPI_Testall");
  Bytes received(static_cast<std::size_t>(coming));
  requests.clear();
  add_receive(handle_->comm, received, from, requests);
  add_send(handle_->comm, bytes, to, requests);
  finish(requests, "MPI_Testall");
  return received;
}

double Communicator::pass(std::span<const std::byte> out, int to, std::span<std::byte> in,
                          int from) const {
  if (!handle_) {
    std::copy(out.begin(), out.end(), in.begin());
    return 0;
  }
  const auto scope = inside("pass", handle_, name(), std::ssize(out));
  const core::Stopwatch watch;
  std::vector<MPI_Request> receives;
  std::vector<MPI_Request> sends;
  if (from >= 0) add_receive(handle_->comm, in, from, receives);
  if (to >= 0) add_send(handle_->comm, out, to, sends);
  finish(receives, "MPI_Testall");
  const double seconds = watch.seconds();
  finish(sends, "MPI_Testall");
  return seconds;
}

std::vector<Communicator::Delivery> Communicator::deliver(std::span<const std::byte> bytes,
                                                          int to) const {
  core::check(to >= 0 && to < size(), "bytes are delivered to a rank of the communicator");
  if (!handle_) return {{0, copy(bytes)}};
  const auto scope = inside("deliver", handle_, name(), std::ssize(bytes));
  const std::int64_t own[] = {to, std::ssize(bytes)};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(size()));
  all_gather_inside(core::DType::i64, own, all.data(), 2);
  std::vector<Delivery> received;
  for (std::size_t from = 0; 2 * from < all.size(); ++from) {
    if (all[2 * from] == rank())
      received.push_back(
          {static_cast<int>(from), Bytes(static_cast<std::size_t>(all[2 * from + 1]))});
  }
  std::vector<MPI_Request> requests;
  for (Delivery& delivery : received)
    add_receive(handle_->comm, delivery.bytes, delivery.from, requests);
  add_send(handle_->comm, bytes, to, requests);
  finish(requests, "MPI_Testall");
  return received;
}

}  // namespace finetune::comm
