// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/detail/pairwise.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/detail/node_map.hpp"
#include "core/error.hpp"
#include "core/message_size.hpp"

namespace finetune::comm {
namespace {

// Pieces on their way at once: one is sent while the next is packed.
constexpr std::size_t num_slots = 2;
constexpr std::int64_t largest_message_bytes = std::int64_t{1} << 30;

int rank_after(const PointToPoint& messages, int round) {
  return (messages.rank() + round) % messages.size();
}

int rank_before(const PointToPoint& messages, int round) {
  return (messages.rank() - round + messages.size()) % messages.size();
}

/// Pieces of this rank's part of an exchange, as they come from each rank in turn.
class PairwiseExchange {
 public:
  PairwiseExchange(const PointToPoint& messages, const Exchange& exchange)
      : messages_(messages),
        exchange_(exchange),
        piece_(std::min(core::message_elements, std::max<std::int64_t>(1, exchange.count))),
        num_pieces_((exchange.count + piece_ - 1) / piece_) {}

  void run() {
    // Left behind where the exchange is given up.
    const Leak leak(staging_);
    for (auto& slot : staging_->out)
      slot.resize(static_cast<std::size_t>(piece_ * exchange_.element_bytes));
    for (auto& slot : staging_->in)
      slot.resize(static_cast<std::size_t>(piece_ * exchange_.element_bytes));
    staging_->sending.fill(MPI_REQUEST_NULL);
    staging_->receiving.fill(MPI_REQUEST_NULL);
    for (std::int64_t k = 0; k < num_pieces_; ++k) {
      pack(messages_.rank(), k, staging_->out[0]);
      add(k, staging_->out[0]);
    }
    // Message k is piece k % num_pieces of round 1 + k / num_pieces; it is added while the next one
    // is on its way.
    const std::int64_t num_messages = (messages_.size() - 1) * num_pieces_;
    for (std::int64_t k = 0; k < num_messages; ++k) {
      start(k);
      if (k > 0) finish(k - 1);
    }
    if (num_messages == 0) return;
    finish(num_messages - 1);
    messages_.finish(staging_->sending);
  }

 private:
  struct Staging {
    std::array<std::vector<std::byte>, num_slots> out, in;
    std::array<MPI_Request, num_slots> sending, receiving;
  };

  std::int64_t offset(std::int64_t k) const { return k % num_pieces_ * piece_; }
  /// Elements of piece k of the part of `rank`.
  std::int64_t count(int rank, std::int64_t k) const {
    const std::int64_t part =
        size_of_part(exchange_.count, exchange_.total(messages_.size()), rank);
    return std::clamp<std::int64_t>(part - offset(k), 0, piece_);
  }
  static std::size_t slot(std::int64_t k) { return static_cast<std::size_t>(k) % num_slots; }

  void pack(int to, std::int64_t k, std::vector<std::byte>& wire) const {
    if (count(to, k) > 0) exchange_.pack(to, offset(k), count(to, k), wire.data());
  }
  void add(std::int64_t k, const std::vector<std::byte>& wire) const {
    const std::int64_t n = count(messages_.rank(), k);
    if (n > 0) exchange_.add(wire.data(), n, exchange_.sums + offset(k) * exchange_.sum_bytes);
  }

  void start(std::int64_t k) {
    const int round = 1 + static_cast<int>(k / num_pieces_);
    const int from = rank_before(messages_, round), to = rank_after(messages_, round);
    const std::int64_t in = count(messages_.rank(), k) * exchange_.element_bytes;
    const std::int64_t out = count(to, k) * exchange_.element_bytes;
    MPI_Request& sending = staging_->sending[slot(k)];
    if (in > 0)
      staging_->receiving[slot(k)] = messages_.receive(staging_->in[slot(k)].data(), in, from);
    messages_.finish(sending);
    pack(to, k, staging_->out[slot(k)]);
    if (out > 0) sending = messages_.send(staging_->out[slot(k)].data(), out, to);
  }

  void finish(std::int64_t k) {
    messages_.finish(staging_->receiving[slot(k)]);
    add(k, staging_->in[slot(k)]);
  }

  const PointToPoint& messages_;
  const Exchange& exchange_;
  std::int64_t piece_;
  std::int64_t num_pieces_;
  std::unique_ptr<Staging> staging_ = std::make_unique<Staging>();
};

}  // namespace

void gather_pairwise(const PointToPoint& messages, const Parts& parts) {
  const auto size_of = [&](int rank) {
    return size_of_part(parts.part_bytes, parts.total_bytes, rank);
  };
  const std::byte* own = parts.whole + messages.rank() * parts.part_bytes;
  const std::int64_t own_bytes = size_of(messages.rank());
  for (int round = 1; round < messages.size(); ++round) {
    const int from = rank_before(messages, round), to = rank_after(messages, round);
    std::byte* target = parts.whole + from * parts.part_bytes;
    std::int64_t sent = 0;
    std::int64_t received = 0;
    while (sent < own_bytes || received < size_of(from)) {
      std::array<MPI_Request, 2> both = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
      const std::int64_t in = std::min(size_of(from) - received, largest_message_bytes);
      const std::int64_t out = std::min(own_bytes - sent, largest_message_bytes);
      if (in > 0) both[0] = messages.receive(target + received, in, from);
      if (out > 0) both[1] = messages.send(own + sent, out, to);
      messages.finish(both);
      received += in;
      sent += out;
    }
  }
}

Swap::Swap(const std::byte* send, std::span<const std::int64_t> send_bytes, std::byte* recv,
           std::span<const std::int64_t> recv_bytes) {
  for (const std::int64_t bytes : send_bytes) {
    out_.emplace_back(send, static_cast<std::size_t>(bytes));
    send += bytes;
  }
  for (const std::int64_t bytes : recv_bytes) {
    in_.emplace_back(recv, static_cast<std::size_t>(bytes));
    recv += bytes;
  }
}

void Swap::check(int rank, int num_ranks) const {
  core::check(std::ssize(out_) == num_ranks && std::ssize(in_) == num_ranks,
              "an all_to_all has a number of bytes for each rank");
  core::check(to(rank).size() == from(rank).size(), "a rank gets from itself what it sends itself");
}

void swap_pairwise(const PointToPoint& messages, const Swap& swap) {
  std::vector<MPI_Request> requests;
  const auto in_pieces = [](std::size_t bytes, const auto& f) {
    for (std::size_t begin = 0; begin < bytes; begin += largest_message_bytes)
      f(begin, std::min<std::size_t>(bytes - begin, largest_message_bytes));
  };
  for (int round = 1; round < messages.size(); ++round) {
    const int from = rank_before(messages, round), to = rank_after(messages, round);
    in_pieces(swap.from(from).size(), [&](std::size_t begin, std::size_t n) {
      requests.push_back(
          messages.receive(swap.from(from).data() + begin, static_cast<std::int64_t>(n), from));
    });
    in_pieces(swap.to(to).size(), [&](std::size_t begin, std::size_t n) {
      requests.push_back(
          messages.send(swap.to(to).data() + begin, static_cast<std::int64_t>(n), to));
    });
  }
  const std::span<const std::byte> own = swap.to(messages.rank());
  if (!own.empty()) std::memcpy(swap.from(messages.rank()).data(), own.data(), own.size());
  messages.finish(requests);
}

void exchange_pairwise(const PointToPoint& messages, const Exchange& exchange) {
  PairwiseExchange(messages, exchange).run();
}

}  // namespace finetune::comm
