// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/detail/chain.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/message_size.hpp"

namespace finetune::comm {
namespace {

/// Running sums that go from node to node. In stage s a node adds its terms to the parts of the
/// ranks s nodes after it; stage N, of N nodes, ends at the owners. Two pieces take turns, so that
/// one is on its way while the other is added.
class Chain {
 public:
  Chain(const NodeMap& map, SharedWindow& window, const PointToPoint& messages,
        const Exchange& exchange)
      : map_(map),
        window_(window),
        messages_(messages),
        exchange_(exchange),
        first_stage_(exchange.order == Order::fixed ? 0 : 1),
        piece_(std::clamp<std::int64_t>(
            std::min(exchange.count,
                     window.half_bytes() / (map.most_on_a_node() * exchange.element_bytes)),
            1, core::message_elements)) {}

  void run() {
    // Left behind where the exchange is given up.
    const Leak leak(lanes_);
    const std::int64_t num_pieces = (exchange_.count + piece_ - 1) / piece_;
    for (std::int64_t k = 0; k < num_pieces; k += 2)
      for (int stage = first_stage_; stage <= map_.num_nodes(); ++stage)
        for (std::int64_t lane = 0; lane < std::min<std::int64_t>(2, num_pieces - k); ++lane)
          do_frame(k + lane, stage, (*lanes_)[static_cast<std::size_t>(lane)]);
    for (Lane& lane : *lanes_)
      messages_.finish(lane.sending);
  }

 private:
  /// Pieces of the parts for which this rank stands in, one after the other.
  struct Lane {
    std::vector<std::byte> in, out;
    std::vector<MPI_Request> receiving, sending;
  };

  std::int64_t count(int rank, std::int64_t k) const {
    const std::int64_t part =
        size_of_part(exchange_.count, exchange_.total(map_.num_ranks()), rank);
    return std::clamp<std::int64_t>(part - k * piece_, 0, piece_);
  }
  int node_of_stage(int stage) const { return (map_.node() + stage) % map_.num_nodes(); }
  bool is_last(int stage) const { return stage == map_.num_nodes(); }

  /// Ranks of this node, by position, whose terms are added in a stage: in a fixed order the
  /// owner's and those before it come first, those after it last.
  struct Terms {
    int first = 0, last = -1;
  };
  Terms terms(int owner, int stage) const {
    const int all = map_.ranks_on(map_.node()) - 1;
    const int position = owner - map_.first(map_.node_of(owner));
    if (exchange_.order == Order::fixed && stage == 0) return {0, position};
    if (exchange_.order == Order::fixed && is_last(stage)) return {position + 1, all};
    return {0, all};
  }

  /// Owners of a stage for whose parts this rank adds.
  std::vector<int> owners(int stage) const {
    std::vector<int> owners;
    const int node = node_of_stage(stage);
    for (int rank = map_.first(node); rank < map_.first(node + 1); ++rank)
      if (map_.stand_in(rank, map_.node()) == messages_.rank()) owners.push_back(rank);
    return owners;
  }

  void do_frame(std::int64_t k, int stage, Lane& lane) {
    const std::int64_t frame = window_.begin_frame(messages_);
    pack(k, stage, frame);
    window_.publish(frame);
    take_sums(k, stage, lane);
    const std::vector<int> owned = owners(stage);
    std::byte* sums = lane.out.data();
    for (const int owner : owned) {
      add_terms(owner, k, stage, frame, sums);
      hand_on(owner, k, stage, lane, sums);
      sums += piece_ * exchange_.sum_bytes;
    }
    window_.mark_read(frame);
    if (!is_last(stage)) expect_sums(k, stage + 1, lane);
  }

  std::byte* slot(int position, std::int64_t frame, int owner) const {
    const int index = owner - map_.first(map_.node_of(owner));
    return window_.half(position, frame) + index * piece_ * exchange_.element_bytes;
  }

  void pack(std::int64_t k, int stage, std::int64_t frame) const {
    const int node = node_of_stage(stage);
    for (int owner = map_.first(node); owner < map_.first(node + 1); ++owner) {
      const auto [first, last] = terms(owner, stage);
      const bool is_needed = first <= map_.position() && map_.position() <= last;
      if (is_needed && count(owner, k) > 0)
        exchange_.pack(owner, k * piece_, count(owner, k), slot(map_.position(), frame, owner));
    }
  }

  /// The sums of a stage are in lane.out then: those that came in, or new ones.
  void take_sums(std::int64_t k, int stage, Lane& lane) {
    messages_.finish(lane.receiving);
    messages_.finish(lane.sending);
    lane.receiving.clear();
    lane.sending.clear();
    std::swap(lane.in, lane.out);
    if (stage > first_stage_) return;
    const std::vector<int> owned = owners(stage);
    lane.out.resize(owned.size() * static_cast<std::size_t>(piece_ * exchange_.sum_bytes));
    std::byte* sums = lane.out.data();
    for (const int owner : owned) {
      const auto bytes = static_cast<std::size_t>(count(owner, k) * exchange_.sum_bytes);
      if (bytes > 0 && stage == 0) std::memcpy(sums, own_sums(k), bytes);
      if (bytes > 0 && stage > 0) std::memset(sums, 0, bytes);
      sums += piece_ * exchange_.sum_bytes;
    }
  }
  std::byte* own_sums(std::int64_t k) const {
    return exchange_.sums + k * piece_ * exchange_.sum_bytes;
  }

  void add_terms(int owner, std::int64_t k, int stage, std::int64_t frame, std::byte* sums) const {
    if (count(owner, k) == 0) return;
    const auto [first, last] = terms(owner, stage);
    for (int position = last; position >= first; --position) {
      window_.wait_for(messages_, position, frame);
      exchange_.add(slot(position, frame, owner), count(owner, k), sums);
    }
  }

  void hand_on(int owner, std::int64_t k, int stage, Lane& lane, const std::byte* sums) const {
    const std::int64_t bytes = count(owner, k) * exchange_.sum_bytes;
    if (bytes == 0) return;
    if (!is_last(stage)) {
      const int next = (map_.node() + map_.num_nodes() - 1) % map_.num_nodes();
      lane.sending.push_back(messages_.send(sums, bytes, map_.stand_in(owner, next)));
    } else if (exchange_.order == Order::fixed) {
      std::memcpy(own_sums(k), sums, static_cast<std::size_t>(bytes));
    } else {
      // What it held before; a sum whose order is free is a sum of such terms.
      exchange_.add(sums, count(owner, k), own_sums(k));
    }
  }

  void expect_sums(std::int64_t k, int stage, Lane& lane) const {
    const std::vector<int> owned = owners(stage);
    lane.in.resize(owned.size() * static_cast<std::size_t>(piece_ * exchange_.sum_bytes));
    const int before = (map_.node() + 1) % map_.num_nodes();
    std::byte* sums = lane.in.data();
    for (const int owner : owned) {
      const std::int64_t bytes = count(owner, k) * exchange_.sum_bytes;
      if (bytes > 0)
        lane.receiving.push_back(messages_.receive(sums, bytes, map_.stand_in(owner, before)));
      sums += piece_ * exchange_.sum_bytes;
    }
  }

  const NodeMap& map_;
  SharedWindow& window_;
  const PointToPoint& messages_;
  const Exchange& exchange_;
  int first_stage_;
  std::int64_t piece_;
  std::unique_ptr<std::array<Lane, 2>> lanes_ = std::make_unique<std::array<Lane, 2>>();
};

}  // namespace

void exchange_in_chain(const NodeMap& map, SharedWindow& window, const PointToPoint& messages,
                       const Exchange& exchange) {
  Chain(map, window, messages, exchange).run();
}

}  // namespace finetune::comm
