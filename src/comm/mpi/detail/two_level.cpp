// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/detail/two_level.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "comm/mpi/detail/chain.hpp"

namespace finetune::comm {
namespace {

constexpr std::int64_t line_bytes = 64;

/// Leaves the window behind if work ends by an exception: messages may still be on their way to it.
class LeftBehind {
 public:
  explicit LeftBehind(SharedWindow& window) : window_(window) {}
  ~LeftBehind() {
    if (!is_done_) window_.leave_behind();
  }
  LeftBehind(const LeftBehind&) = delete;
  LeftBehind& operator=(const LeftBehind&) = delete;
  void done() { is_done_ = true; }

 private:
  SharedWindow& window_;
  bool is_done_ = false;
};

/// Ranks of other nodes for which `rank` stands in.
std::vector<int> represented_by(const NodeMap& map, int rank) {
  std::vector<int> ranks;
  const int node = map.node_of(rank);
  for (int other = 0; other < map.num_ranks(); ++other)
    if (map.node_of(other) != node && map.stand_in(other, node) == rank) ranks.push_back(other);
  return ranks;
}

/// Parts that lie in the fullest half of a gather: one of its rank, and those it stands in for.
std::int64_t most_slots(const NodeMap& map) {
  std::int64_t most = 0;
  for (int node = 0; node < map.num_nodes(); ++node) {
    std::int64_t slots = 1;
    for (int other = 0; other < map.num_nodes(); ++other)
      if (other != node)
        slots += (map.ranks_on(other) + map.ranks_on(node) - 1) / map.ranks_on(node);
    most = std::max(most, slots);
  }
  return most;
}

}  // namespace

std::int64_t window_half_bytes(int num_nodes) {
  constexpr std::int64_t kib = 1024;
  return std::clamp<std::int64_t>(64 * kib * num_nodes, 1024 * kib, 16 * 1024 * kib);
}

/// A frame holds one piece of every part; the next frame's are on their way while it is read.
class TwoLevel::Gather {
 public:
  Gather(const TwoLevel& levels, const PointToPoint& messages, const Parts& parts)
      : map_(levels.map_),
        window_(*levels.window_),
        represented_(levels.represented_),
        messages_(messages),
        parts_(parts),
        slot_bytes_(std::max(window_.half_bytes() / levels.most_slots_ / line_bytes * line_bytes,
                             line_bytes)) {}

  void run() {
    const std::int64_t num_pieces = (parts_.part_bytes + slot_bytes_ - 1) / slot_bytes_;
    std::int64_t next_frame = num_pieces > 0 ? start(0) : 0;
    for (std::int64_t k = 0; k < num_pieces; ++k) {
      const std::int64_t frame = next_frame;
      if (k + 1 < num_pieces) next_frame = start(k + 1);
      messages_.finish(requests_[static_cast<std::size_t>(k % 2)]);
      window_.publish(frame);
      read(k, frame);
      window_.mark_read(frame);
    }
  }

 private:
  std::int64_t bytes(int rank, std::int64_t k) const {
    const std::int64_t part = size_of_part(parts_.part_bytes, parts_.total_bytes, rank);
    return std::clamp<std::int64_t>(part - k * slot_bytes_, 0, slot_bytes_);
  }
  std::byte* piece(int rank, std::int64_t k) const {
    return parts_.whole + rank * parts_.part_bytes + k * slot_bytes_;
  }

  /// Piece k of this rank's part leaves for other nodes, and theirs come into this rank's half.
  std::int64_t start(std::int64_t k) {
    const std::int64_t frame = window_.begin_frame(messages_);
    std::byte* half = window_.half(map_.position(), frame);
    std::vector<MPI_Request>& requests = requests_[static_cast<std::size_t>(k % 2)];
    requests.clear();
    std::byte* slot = half;
    for (const int from : represented_[static_cast<std::size_t>(map_.position())]) {
      slot += slot_bytes_;
      if (bytes(from, k) > 0) requests.push_back(messages_.receive(slot, bytes(from, k), from));
    }
    const std::int64_t own = bytes(messages_.rank(), k);
    if (own == 0) return frame;
    // The next node first, so that not all send to the same one.
    for (int i = 1; i < map_.num_nodes(); ++i) {
      const int node = (map_.node() + i) % map_.num_nodes();
      requests.push_back(
          messages_.send(piece(messages_.rank(), k), own, map_.stand_in(messages_.rank(), node)));
    }
    std::memcpy(half, piece(messages_.rank(), k), static_cast<std::size_t>(own));
    return frame;
  }

  /// Copies what the ranks of this node have laid out. Each begins with the one after it, so that
  /// not all read the same memory.
  void read(std::int64_t k, std::int64_t frame) const {
    const int num_ranks = map_.ranks_on(map_.node());
    for (int i = 0; i < num_ranks; ++i) {
      const int position = (map_.position() + 1 + i) % num_ranks;
      const int neighbour = map_.first(map_.node()) + position;
      window_.wait_for(messages_, position, frame);
      const std::byte* slot = window_.half(position, frame);
      if (neighbour != messages_.rank()) copy(neighbour, k, slot);
      for (const int rank : represented_[static_cast<std::size_t>(position)])
        copy(rank, k, slot += slot_bytes_);
    }
  }
  void copy(int rank, std::int64_t k, const std::byte* slot) const {
    if (bytes(rank, k) > 0)
      std::memcpy(piece(rank, k), slot, static_cast<std::size_t>(bytes(rank, k)));
  }

  const NodeMap& map_;
  SharedWindow& window_;
  const std::vector<std::vector<int>>& represented_;
  const PointToPoint& messages_;
  const Parts& parts_;
  std::int64_t slot_bytes_;
  std::array<std::vector<MPI_Request>, 2> requests_;
};

TwoLevel::TwoLevel(NodeMap map, std::unique_ptr<SharedWindow> window)
    : map_(std::move(map)), window_(std::move(window)), most_slots_(most_slots(map_)) {
  for (int rank = map_.first(map_.node()); rank < map_.first(map_.node() + 1); ++rank)
    represented_.push_back(represented_by(map_, rank));
}

void TwoLevel::gather(const PointToPoint& messages, const Parts& parts) {
  LeftBehind left(*window_);
  Gather(*this, messages, parts).run();
  left.done();
}

void TwoLevel::exchange(const PointToPoint& messages, const Exchange& exchange) {
  LeftBehind left(*window_);
  exchange_in_chain(map_, *window_, messages, exchange);
  left.done();
}

Moved TwoLevel::moved_by_gather(const Parts& parts, int rank) const {
  const auto size_of = [&](int r) { return size_of_part(parts.part_bytes, parts.total_bytes, r); };
  Moved moved{.between_nodes = (map_.num_nodes() - 1) * size_of(rank), .inside = size_of(rank)};
  for (const int other : represented_by(map_, rank))
    moved.inside += size_of(other);
  return moved;
}

Moved TwoLevel::moved_by_exchange(const Exchange& exchange, int rank) const {
  Moved moved;
  const std::int64_t total = exchange.total(map_.num_ranks());
  const int node = map_.node_of(rank);
  for (int owner = 0; owner < map_.num_ranks(); ++owner) {
    const std::int64_t elements = size_of_part(exchange.count, total, owner);
    moved.inside += elements * exchange.element_bytes;
    const bool is_sent = map_.node_of(owner) != node || exchange.order == Order::fixed;
    if (is_sent && map_.stand_in(owner, node) == rank)
      moved.between_nodes += elements * exchange.sum_bytes;
  }
  return moved;
}

}  // namespace finetune::comm
