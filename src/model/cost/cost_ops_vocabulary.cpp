// SPDX-License-Identifier: Apache-2.0
// What the two ends of a pass cost: the embedding and the head.
#include <algorithm>

#include "model/cost/adapter_cost.hpp"
#include "model/cost/cost_ops.hpp"

namespace finetune::model {

TensorSize CostOps::embedding(const TensorSize& ids_N, int row) {
  const TensorSize x = tensor(own_tokens(ids_N.rows), table_.row(row).shape[1]);
  OpCost op{.inputs = {ids_N}, .forward = {{x.bytes}}, .outputs = {x.number}};
  const std::int64_t elements = all_tokens(x.rows) * x.columns;
  if (shares_tokens()) {
    const std::int64_t whole = elements * element_;
    op.forward.front().bytes += whole;
    op.forward_work.travels = {travel(Sharers::tp, Travel::Kind::reduce_scatter, whole)};
    if (table_.row(row).trainable)
      op.backward_work.travels = {travel(Sharers::tp, Travel::Kind::all_gather, whole)};
  }
  const auto element = static_cast<double>(element_);
  op.forward_work.passes = {pass(elements, 2 * element, 1)};
  if (table_.row(row).trainable)
    op.backward_work.passes = {pass(elements, bytes_.embedding_backward, bytes_.operations)};
  if (table_.row(row).adapted.exists()) {
    const ProjectionShape shape = projection_shape(table_, {row, 1});
    ProjectionCost cost;
    shape.adapted.front()->adapted.cost->add_to_embedding(shape, settings_, all_tokens(x.rows),
                                                          cost);
    op.forward.front().bytes += cost.forward.bytes;
    op.backward = {cost.backward};
    op.forward_work.add(cost.forward_work);
    op.backward_work.add(cost.backward_work);
    if (shares_tokens()) {
      // All tokens' gradients, gathered.
      op.backward.front().bytes += elements * element_;
      op.backward_work.travels = {
          travel(Sharers::tp, Travel::Kind::all_gather, elements * element_)};
    }
  }
  tape_.record(std::move(op));
  return x;
}

/// All tokens meet each rank's part of the vocabulary. What a token needs of the others: its
/// largest logit, its sum of exponentials, its label's logit, in fp32.
void CostOps::share_head(OpCost& op, const TensorSize& x_nD) const {
  if (!shares_tokens()) return;
  using enum Travel::Kind;
  const std::int64_t tokens = all_tokens(x_nD.rows), whole = tokens * x_nD.columns * element_;
  op.forward.front().bytes += 2 * whole;
  op.forward_work.travels = {
      travel(Sharers::tp, all_gather, whole),
      travel(Sharers::tp, all_gather, settings_.share.place.tp * fp32_bytes * tokens),
      travel(Sharers::tp, all_reduce, fp32_bytes * tokens),
      travel(Sharers::tp, all_reduce, fp32_bytes * tokens)};
  op.backward_work.travels = {travel(Sharers::tp, reduce_scatter, whole)};
}

/// What an adapter does for the head: of a chunk at once, and the gradient of the chunk's inputs.
void CostOps::add_head_parts(OpCost& op, int row, std::int64_t tokens, std::int64_t chunk) {
  if (!table_.row(row).adapted.exists()) return;
  const ProjectionShape shape = projection_shape(table_, {row, 1});
  const AdapterCost& adapter = *shape.adapted.front()->adapted.cost;
  ProjectionCost of_chunk, of_all;
  of_chunk.backward.bytes = chunk * shape.num_inputs * element_;
  adapter.add(shape, settings_, chunk, tape_, of_chunk);
  adapter.add(shape, settings_, tokens, tape_, of_all);
  std::int64_t kept = 0;
  for (const TensorSize& tensor : of_chunk.kept)
    kept += tensor.bytes;
  op.forward.front().bytes += kept + std::max(of_chunk.forward.total(), of_chunk.backward.total());
  op.forward_work.add(of_all.forward_work);
  op.backward_work.add(of_all.backward_work);
}

Scores<TensorSize> CostOps::pull_back_label_scores(const TensorSize& x_ND, const TensorSize&,
                                                   int row, const TensorSize&, TensorSize&) {
  const Parameter& weight = table_.row(row);
  const std::int64_t num_tokens = all_tokens(x_ND.rows);
  const std::int64_t chunk = std::min(num_tokens, head_chunk_tokens);
  const auto tokens = static_cast<double>(chunk);
  const double chunks = static_cast<double>(num_tokens) / tokens;
  const auto vocabulary = static_cast<double>(weight.shape[0]);
  const auto width = static_cast<double>(weight.shape[1]);
  OpCost op{.inputs = {x_ND}};
  // The gradient of x, and a chunk's logits; next to them a composition writes the softmax, and
  // ranks that share the vocabulary the logits in fp32, if they are not.
  const bool is_wide = shares_tokens() ? element_ < fp32_bytes : settings_.is_composed;
  const bool is_capped = table_.outputs.softcap > 0;
  const std::int64_t of_logit = element_ * (is_capped ? 3 : 1) + (is_wide ? fp32_bytes : 0);
  op.forward = {{x_ND.bytes + of_logit * chunk * weight.shape[0]}};
  op.forward_work.products = {{tokens, vocabulary, width, chunks}};
  op.forward_work.passes = {
      pass(num_tokens * weight.shape[0], bytes_.logit, chunks * bytes_.operations)};
  op.backward_work.products = {{tokens, width, vocabulary, chunks}};
  if (weight.trainable) op.backward_work.products.push_back({vocabulary, width, tokens, chunks});
  share_head(op, x_ND);
  add_head_parts(op, row, num_tokens, chunk);
  tape_.record(std::move(op));
  // A few bytes per token, next to thousands.
  return {};
}

}  // namespace finetune::model
