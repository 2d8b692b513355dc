// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/context_ways.hpp"

#include <algorithm>
#include <utility>

#include "model/upload.hpp"
#include "shard/started.hpp"

namespace finetune::shard {
namespace {

using model::AttentionShape;
using model::ContextOutput;
using model::ContextPiece;
using model::MergedAttention;
using model::Path;
using model::TokenRun;

/// [N, 2 Hkv K], keys first.
at::Tensor keys_and_values(const at::Tensor& qkv, const AttentionShape& shape) {
  const std::int64_t width = shape.num_kv_heads * shape.head_size;
  return qkv.narrow(1, shape.num_heads * shape.head_size, 2 * width);
}

ContextOutput rounded(MergedAttention merged, at::ScalarType dtype) {
  return {merged.out_NHK.flatten(1).to(dtype), std::move(merged.logsumexp_NH)};
}

at::Tensor zeros_in_fp32(std::int64_t rows, std::int64_t width, const at::Tensor& like) {
  return at::zeros({rows, width}, like.options().dtype(at::kFloat));
}

at::Tensor zero_queries(const at::Tensor& qkv, const AttentionShape& shape) {
  return zeros_in_fp32(qkv.size(0), shape.num_heads * shape.head_size, qkv);
}

/// In the activations' dtype, without a copy of all in fp32.
at::Tensor joined(const at::Tensor& d_q, const at::Tensor& d_kv, const at::Tensor& qkv) {
  const at::Tensor d_qkv = at::empty(qkv.sizes(), qkv.options());
  d_qkv.narrow(1, 0, d_q.size(1)).copy_(d_q);
  d_qkv.narrow(1, d_q.size(1), d_kv.size(1)).copy_(d_kv);
  return d_qkv;
}

/// Numbers of the rows of all runs.
at::Tensor rows_of(const std::vector<std::vector<TokenRun>>& by_rank, at::Device device) {
  std::vector<std::int64_t> rows;
  for (const std::vector<TokenRun>& runs : by_rank)
    for (const TokenRun& run : runs)
      for (std::int64_t row = run.first; row < run.end(); ++row)
        rows.push_back(row);
  return model::upload(at::tensor(at::ArrayRef<std::int64_t>(rows), at::kLong), device);
}

std::vector<std::int64_t> counts_of(const std::vector<std::vector<TokenRun>>& by_rank) {
  std::vector<std::int64_t> counts;
  for (const std::vector<TokenRun>& runs : by_rank)
    counts.push_back(model::count_tokens(runs));
  return counts;
}

std::vector<std::int64_t> times(std::vector<std::int64_t> counts, std::int64_t bytes) {
  for (std::int64_t& count : counts)
    count *= bytes;
  return counts;
}

std::int64_t row_bytes(const at::Tensor& rows) {
  return rows.size(1) * rows.element_size();
}

/// Each rank fetches what its queries see, computes, and gives the gradients back.
class Gather final : public ContextWay {
 public:
  Gather(const model::Sequence& sequence, model::Reach reach, comm::Group& cp, at::Device device)
      : cp_(cp), own_(model::own_runs(sequence, reach.chunk)) {
    model::KeyFetch fetch = model::fetch_keys(sequence, reach);
    pieces_ = std::move(fetch.pieces);
    sent_ = counts_of(fetch.sent);
    received_ = counts_of(fetch.received);
    sent_rows_ = rows_of(fetch.sent, device);
    received_rows_ = rows_of(fetch.received, device);
    order_ = received_rows_.argsort();
  }

  ContextOutput attend(const at::Tensor& qkv, const AttentionShape& shape,
                       Path path) const override {
    MergedAttention merged(qkv.size(0), shape, qkv.device());
    at::Tensor fetched = fetch(keys_and_values(qkv, shape));
    model::attend_merged(qkv, {fetched, pieces_, own_}, shape, path, merged);
    fetched.reset();
    return rounded(std::move(merged), qkv.scalar_type());
  }

  at::Tensor attend_backward(const at::Tensor& d_out_NF, const AttendedContext& attended,
                             const AttentionShape& shape, Path path) const override {
    const at::Tensor& qkv = attended.qkv;
    at::Tensor d_q = zero_queries(qkv, shape);
    // Fetched again: kept, it would be what a rank of its own keeps.
    at::Tensor fetched = fetch(keys_and_values(qkv, shape));
    at::Tensor d_fetched = zeros_in_fp32(fetched.size(0), fetched.size(1), qkv);
    model::attend_merged_backward(d_out_NF, qkv, {fetched, pieces_, own_}, shape, path,
                                  attended.output, d_q, d_fetched);
    fetched.reset();
    return joined(d_q, give_back(std::move(d_fetched), qkv.scalar_type(), qkv.size(0)), qkv);
  }

 private:
  at::Tensor fetch(const at::Tensor& kv) const {
    at::Tensor sent = kv.index_select(0, sent_rows_);
    const at::Tensor received = at::empty({order_.size(0), kv.size(1)}, kv.options());
    Started(cp_, {sent, received}, [&] {
      return cp_.all_to_all(sent.const_data_ptr(), times(sent_, row_bytes(sent)),
                            received.data_ptr(), times(received_, row_bytes(sent)));
    }).wait();
    sent.reset();
    return received.index_select(0, order_);
  }

  /// Gradients of what was fetched, to whom it belongs, in the dtype in which keys came: the sums
  /// of this rank's tokens, in fp32. Of several copies one is there at a time.
  at::Tensor give_back(at::Tensor d_fetched, at::ScalarType dtype, std::int64_t num_tokens) const {
    d_fetched = d_fetched.to(dtype);
    at::Tensor given = d_fetched.index_select(0, received_rows_);
    d_fetched.reset();
    const at::Tensor terms = at::empty({sent_rows_.size(0), given.size(1)}, given.options());
    Started(cp_, {given, terms}, [&] {
      return cp_.all_to_all(given.const_data_ptr(), times(received_, row_bytes(given)),
                            terms.data_ptr(), times(sent_, row_bytes(given)));
    }).wait();
    given.reset();
    at::Tensor d_kv = zeros_in_fp32(num_tokens, terms.size(1), terms);
    std::int64_t first = 0;
    // One rank after the other, of which each has a token once: sums have one order.
    for (const std::int64_t count : sent_) {
      d_kv.index_add_(0, sent_rows_.narrow(0, first, count),
                      terms.narrow(0, first, count).to(at::kFloat));
      first += count;
    }
    return d_kv;
  }

  comm::Group& cp_;
  model::Sequence own_;
  std::vector<ContextPiece> pieces_;
  std::vector<std::int64_t> sent_, received_;  ///< tokens, by rank
  at::Tensor sent_rows_, received_rows_;       ///< rank by rank
  at::Tensor order_;                           ///< where the keys at hand lie in what is received
};

/// Keys and values of a rank visit all others, one after the other; while the next ones are on
/// their way, queries attend to those that are here.
class Ring final : public ContextWay {
 public:
  Ring(const model::Sequence& sequence, std::int64_t chunk, comm::Group& cp)
      : cp_(cp), own_(model::own_runs(sequence, chunk)) {
    for (int rank = 0; rank < cp.size(); ++rank) {
      num_tokens_.push_back(sequence.context->num_tokens(rank));
      pieces_.push_back(model::pieces_of_holder(sequence, chunk, rank));
    }
  }

  ContextOutput attend(const at::Tensor& qkv, const AttentionShape& shape,
                       Path path) const override {
    MergedAttention merged(qkv.size(0), shape, qkv.device());
    at::Tensor held = keys_and_values(qkv, shape).contiguous();
    for (int step = 0; step < cp_.size(); ++step) {
      Travel travel;
      if (step + 1 < cp_.size()) travel = pass_on(held, step);
      model::attend_merged(qkv, {held, pieces(step), own_}, shape, path, merged);
      held = arrived(travel);
    }
    return rounded(std::move(merged), qkv.scalar_type());
  }

  /// Gradients travel one step behind their keys, each rank adding its terms, and so come home.
  at::Tensor attend_backward(const at::Tensor& d_out_NF, const AttendedContext& attended,
                             const AttentionShape& shape, Path path) const override {
    const at::Tensor& qkv = attended.qkv;
    at::Tensor d_q = zero_queries(qkv, shape);
    at::Tensor held = keys_and_values(qkv, shape).contiguous();
    Travel of_gradients;
    for (int step = 0; step < cp_.size(); ++step) {
      Travel of_keys;
      if (step + 1 < cp_.size()) of_keys = pass_on(held, step);
      at::Tensor d_held;
      if (!pieces(step).empty()) {
        d_held = zeros_in_fp32(held.size(0), held.size(1), held);
        model::attend_merged_backward(d_out_NF, qkv, {held, pieces(step), own_}, shape, path,
                                      attended.output, d_q, d_held);
      }
      at::Tensor sum = arrived(of_gradients);
      if (!sum.defined())
        sum = d_held.defined() ? d_held : zeros_in_fp32(held.size(0), held.size(1), held);
      else if (d_held.defined())
        sum.add_(d_held);
      of_gradients = pass_on(sum, step);
      held = arrived(of_keys);
    }
    return joined(d_q, arrived(of_gradients), qkv);
  }

 private:
  struct Travel {
    Started started = {};
    at::Tensor received = {};
  };

  /// Whose keys are here in a step, or in the one after the last: its own.
  std::size_t holder(int step) const {
    return static_cast<std::size_t>((cp_.rank() - step + cp_.size()) % cp_.size());
  }
  const std::vector<ContextPiece>& pieces(int step) const { return pieces_[holder(step)]; }

  /// Starts to send what is here in `step` to the next rank, and to receive what is here then.
  Travel pass_on(const at::Tensor& rows, int step) const {
    const at::Tensor received =
        at::empty({num_tokens_[holder(step + 1)], rows.size(1)}, rows.options());
    std::vector<std::int64_t> send(static_cast<std::size_t>(cp_.size())), receive = send;
    send[static_cast<std::size_t>((cp_.rank() + 1) % cp_.size())] = rows.size(0) * row_bytes(rows);
    receive[holder(1)] = received.size(0) * row_bytes(rows);
    Started started(cp_, {rows, received}, [&] {
      return cp_.all_to_all(rows.const_data_ptr(), send, received.data_ptr(), receive);
    });
    return {std::move(started), received};
  }

  at::Tensor arrived(Travel& travel) const {
    travel.started.wait();
    return std::exchange(travel.received, at::Tensor());
  }

  comm::Group& cp_;
  model::Sequence own_;
  std::vector<std::int64_t> num_tokens_;           ///< by rank
  std::vector<std::vector<ContextPiece>> pieces_;  ///< by who has the keys
};

}  // namespace

bool goes_round(plan::ContextMethod method, const model::Sequence& sequence,
                const model::AttentionShape& shape, std::int64_t element_bytes) {
  if (method == plan::ContextMethod::gather || shape.window > 0) return false;
  if (method == plan::ContextMethod::ring) return true;
  const model::ContextLayout& layout = *sequence.context;
  std::int64_t most = 0;
  for (int rank = 0; rank < layout.num_ranks(); ++rank)
    most = std::max(most, model::count_tokens(model::seen_keys(sequence, {0, shape.chunk}, rank)) -
                              layout.num_tokens(rank));
  const std::int64_t token_bytes = 2 * shape.num_kv_heads * shape.head_size * element_bytes;
  const std::int64_t travels =
      layout.num_all_tokens() * (layout.num_ranks() - 1) / layout.num_ranks();
  return most * token_bytes >= model::ring_from_bytes && 2 * most > travels;
}

std::unique_ptr<ContextWay> make_way(plan::ContextMethod method, const model::Sequence& sequence,
                                     const model::AttentionShape& shape, std::int64_t element_bytes,
                                     comm::Group& cp, at::Device device) {
  if (goes_round(method, sequence, shape, element_bytes))
    return std::make_unique<Ring>(sequence, shape.chunk, cp);
  return std::make_unique<Gather>(sequence, model::Reach{shape.window, shape.chunk}, cp, device);
}

}  // namespace finetune::shard
