// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/expert_parallel.hpp"

#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "model/upload.hpp"
#include "shard/started.hpp"

namespace finetune::shard {
namespace {

using model::IndexRange;
using Counts = std::vector<std::int64_t>;

std::int64_t sum(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Consecutive rows for or from each rank.
struct Parcels {
  Counts rows;

  std::int64_t total() const { return sum(rows); }
  Counts bytes(std::int64_t row_bytes) const {
    Counts all;
    for (const std::int64_t count : rows)
      all.push_back(count * row_bytes);
    return all;
  }
};

/// How often a layer's experts were chosen, on the host: by this rank's tokens, and this rank's
/// experts by the tokens of each rank.
struct Choices {
  Counts of_experts;  ///< [E]
  Counts of_held;     ///< [ranks, held]: row-major
};

/// A GPU's host waits here, once per layer. Collective on `ep`.
Choices exchange_counts(comm::Group& ep, const at::Tensor& ends,
                        const std::vector<IndexRange>& held) {
  const at::Tensor counts =
      ends - at::cat({at::zeros({1}, ends.options()), ends.narrow(0, 0, ends.numel() - 1)});
  const std::int64_t num_held = held[static_cast<std::size_t>(ep.rank())].count();
  std::vector<at::Tensor> parts;
  Counts send_bytes;
  for (const IndexRange& range : held) {
    parts.push_back(counts.narrow(0, range.first, range.count()));
    send_bytes.push_back(range.count() * std::int64_t{sizeof(std::int64_t)});
  }
  const Counts recv_bytes(held.size(), num_held * std::int64_t{sizeof(std::int64_t)});
  const at::Tensor sent = at::cat(parts);
  const at::Tensor received = at::empty({ep.size() * num_held}, ends.options());
  Started(ep, {sent, received}, [&] {
    return ep.all_to_all(sent.data_ptr(), send_bytes, received.data_ptr(), recv_bytes);
  }).wait();
  const at::Tensor on_host = at::cat({counts, received}).to(at::kCPU);
  const auto* first = on_host.const_data_ptr<std::int64_t>();
  return {{first, first + counts.numel()}, {first + counts.numel(), first + on_host.numel()}};
}

/// [rows that come]: the place among them, by rank and expert, of each in the order of experts.
at::Tensor order_of(const Counts& of_held, std::int64_t num_held, at::Device device) {
  const auto num_ranks = num_held == 0 ? 0 : std::ssize(of_held) / num_held;
  Counts begin(of_held.size() + 1, 0);
  std::partial_sum(of_held.begin(), of_held.end(), begin.begin() + 1);
  const at::Tensor order = at::empty({begin.back()}, at::kLong);
  auto* next = order.data_ptr<std::int64_t>();
  for (std::int64_t expert = 0; expert < num_held; ++expert)
    for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
      const auto i = static_cast<std::size_t>(rank * num_held + expert);
      std::iota(next, next + of_held[i], begin[i]);
      next += of_held[i];
    }
  return device.is_cpu() ? order : model::upload(order, device);
}

Counts counts_of_held(const Counts& of_held, std::int64_t num_held) {
  Counts counts(static_cast<std::size_t>(num_held), 0);
  for (std::size_t i = 0; i < of_held.size(); ++i)
    counts[i % counts.size()] += of_held[i];
  return counts;
}

/// Those of [M, ...] that travel, from the ranges of experts of the ranks.
class ExchangedRows final : public model::ExpertRoute {
 public:
  ExchangedRows(comm::Group& ep, const std::vector<IndexRange>& held, const Choices& choices,
                at::Device device)
      : ExpertRoute(
            held[static_cast<std::size_t>(ep.rank())],
            {counts_of_held(choices.of_held, held[static_cast<std::size_t>(ep.rank())].count()),
             device}),
        ep_(ep),
        num_rows_(sum(choices.of_experts)) {
    const std::span<const std::int64_t> chosen(choices.of_experts);
    const std::int64_t num_held = this->held().count();
    for (std::size_t rank = 0; rank < held.size(); ++rank) {
      first_.push_back(sum(chosen.first(static_cast<std::size_t>(held[rank].first))));
      out_.rows.push_back(sum(chosen.subspan(static_cast<std::size_t>(held[rank].first),
                                             static_cast<std::size_t>(held[rank].count()))));
      in_.rows.push_back(sum(std::span(choices.of_held)
                                 .subspan(rank * static_cast<std::size_t>(num_held),
                                          static_cast<std::size_t>(num_held))));
    }
    order_ = order_of(choices.of_held, num_held, device);
  }

  at::Tensor there(const at::Tensor& rows) const override {
    core::check(rows.size(0) == num_rows_, "a route is for the rows it was made for");
    return exchange(outgoing(rows), out_, in_).index_select(0, order_);
  }

  at::Tensor back(const at::Tensor& rows) const override {
    const at::Tensor by_rank = at::empty_like(rows, at::MemoryFormat::Contiguous);
    by_rank.index_copy_(0, order_, rows);
    const at::Tensor returned = exchange(by_rank, in_, out_);
    if (travel_all()) return returned;
    std::vector<std::int64_t> shape = rows.sizes().vec();
    shape.front() = num_rows_;
    const at::Tensor whole = at::zeros(shape, rows.options());
    std::int64_t begin = 0;
    for (std::size_t rank = 0; rank < first_.size(); ++rank) {
      whole.narrow(0, first_[rank], out_.rows[rank])
          .copy_(returned.narrow(0, begin, out_.rows[rank]));
      begin += out_.rows[rank];
    }
    return whole;
  }

 private:
  /// The experts of a layer are those of the ranks; else ranks of tp have others.
  bool travel_all() const { return out_.total() == num_rows_; }

  at::Tensor outgoing(const at::Tensor& rows) const {
    if (travel_all()) return rows.contiguous();
    std::vector<at::Tensor> parts;
    for (std::size_t rank = 0; rank < first_.size(); ++rank)
      parts.push_back(rows.narrow(0, first_[rank], out_.rows[rank]));
    return at::cat(parts);
  }

  at::Tensor exchange(const at::Tensor& rows, const Parcels& out, const Parcels& in) const {
    std::vector<std::int64_t> shape = rows.sizes().vec();
    shape.front() = in.total();
    const at::Tensor received = at::empty(shape, rows.options());
    std::int64_t row_bytes = rows.element_size();
    for (std::size_t dim = 1; dim < shape.size(); ++dim)
      row_bytes *= shape[dim];
    Started(ep_, {rows, received}, [&] {
      return ep_.all_to_all(rows.data_ptr(), out.bytes(row_bytes), received.data_ptr(),
                            in.bytes(row_bytes));
    }).wait();
    return received;
  }

  comm::Group& ep_;
  std::int64_t num_rows_;
  Counts first_;  ///< by rank: the first of its rows
  Parcels out_, in_;
  at::Tensor order_;
};

}  // namespace

std::shared_ptr<const model::ExpertRoute> SharedExperts::route(const at::Tensor& ends,
                                                               model::ExpertTensors tensors) const {
  std::vector<IndexRange> held;
  for (model::PartPlace place = place_; std::ssize(held) < place_.ep;) {
    place.i_ep = std::ssize(held);
    held.push_back(model::held_of(ends.numel(), tensors, place));
  }
  const Choices choices = exchange_counts(ep_, ends, held);
  return std::make_shared<ExchangedRows>(ep_, held, choices, ends.device());
}

ExpertParallelOps::ExpertParallelOps(model::Weights& weights, const SharedWith& with,
                                     model::Path path, model::Recompute recompute)
    : ContextParallelOps(weights, with.cp, with.method, path, recompute) {
  if (with.ep != nullptr && with.ep->size() > 1) {
    dispatch_ = std::make_unique<SharedExperts>(*with.ep, with.place);
  } else {
    dispatch_ = std::make_unique<model::HeldExperts>(with.place);
  }
}

at::Tensor ExpertParallelOps::experts(const at::Tensor& x_ND, const at::Tensor& routed_ND,
                                      const model::ExpertRows& rows, const model::Experts& experts,
                                      const model::Sequence& sequence) {
  return experts_of(x_ND, routed_ND, rows, experts, sequence, nullptr);
}

at::Tensor ExpertParallelOps::experts_of(const at::Tensor& x_ND, const at::Tensor& routed_ND,
                                         const model::ExpertRows& rows,
                                         const model::Experts& experts,
                                         const model::Sequence& sequence,
                                         std::shared_ptr<const model::TokenTravel> travel) {
  return experts_by(*dispatch_, x_ND, routed_ND, rows, experts, sequence, std::move(travel));
}

}  // namespace finetune::shard
