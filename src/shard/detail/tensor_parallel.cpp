// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/tensor_parallel.hpp"

#include <ATen/core/grad_mode.h>

#include <vector>

#include "core/error.hpp"
#include "model/gathered_tokens.hpp"
#include "shard/started.hpp"

namespace finetune::shard {

TensorParallelOps::TensorParallelOps(model::Weights& weights, const model::ParameterTable& table,
                                     comm::Group& tp, model::Path path, model::Recompute recompute,
                                     const SharedWith& with)
    : ExpertParallelOps(weights, with, path, recompute), table_(table), tp_(tp) {}

void TensorParallelOps::begin_pass(std::int64_t num_tokens) {
  if (travel_ && travel_->tokens().num_tokens == num_tokens) return;
  travel_ = std::make_shared<GroupTravel>(tp_, num_tokens);
}

const GroupTravel& TensorParallelOps::travel() const {
  core::check(travel_ != nullptr, "a pass begins with the embedding");
  return *travel_;
}

model::Projection TensorParallelOps::projection(model::RowRange rows) {
  model::Projection projection = Ops::projection(rows);
  const model::Parameter& row = table_.row(rows.first);
  if (!row.split) {
    // It reads own tokens, which an adapter drops by their numbers.
    if (projection.dropout && travel_)
      projection.dropout->tokens_N = projection.dropout->tokens_N.narrow(
          0, travel_->tokens().first(), travel_->tokens().count());
    return projection;
  }
  core::check(travel_ != nullptr, "a pass begins with the embedding");
  projection.travel = travel_;
  const bool has_all_outputs = row.split->dim == 1;
  projection.travels = has_all_outputs ? model::Travels::outputs : model::Travels::inputs;
  if (has_all_outputs && row.held) projection.first_channel = row.held->boxes.front().begin[1];
  return projection;
}

model::AttentionShape TensorParallelOps::own_heads(model::AttentionShape shape) const {
  const auto own = model::held_heads(shape.num_heads, shape.num_kv_heads,
                                     {.tp = tp_.size(), .i_tp = tp_.rank()});
  shape.num_heads = own.num_heads;
  shape.num_kv_heads = own.num_kv_heads;
  return shape;
}

at::Tensor TensorParallelOps::head_norm(const at::Tensor& qkv, const model::AttentionShape& shape,
                                        const model::HeadNorms& norms) {
  return Ops::head_norm(qkv, own_heads(shape), norms);
}

at::Tensor TensorParallelOps::rotate(const at::Tensor& qkv, const model::AttentionShape& shape,
                                     const model::Sequence& sequence) {
  return Ops::rotate(qkv, own_heads(shape), sequence);
}

at::Tensor TensorParallelOps::join_heads(const at::Tensor& q, const at::Tensor& kv,
                                         const at::Tensor& key_nR,
                                         const model::LatentHeads& heads) {
  core::check(travel_ != nullptr, "a pass begins with the embedding");
  model::LatentHeads own = heads;
  own.num_heads =
      own_heads({.num_heads = heads.num_heads, .num_kv_heads = heads.num_heads}).num_heads;
  return Ops::join_heads(q, kv, model::gathered_tokens(key_nR, travel_), own);
}

at::Tensor TensorParallelOps::first_channels(const at::Tensor& x, std::int64_t num,
                                             std::int64_t size) {
  return Ops::first_channels(x, own_heads({.num_heads = num, .num_kv_heads = num}).num_heads, size);
}

at::Tensor TensorParallelOps::tune_temperature(const at::Tensor& qkv,
                                               const model::AttentionShape& shape,
                                               const model::Sequence& sequence,
                                               const model::Temperature& temperature) {
  return Ops::tune_temperature(qkv, own_heads(shape), sequence, temperature);
}

std::pair<at::Tensor, at::Tensor> TensorParallelOps::part_gates(
    const at::Tensor& x, const model::AttentionShape& shape) {
  return Ops::part_gates(x, own_heads(shape));
}

at::Tensor TensorParallelOps::sort_heads(const at::Tensor& x, const model::AttentionShape& shape) {
  return Ops::sort_heads(x, own_heads(shape));
}

at::Tensor TensorParallelOps::repeat_keys(const at::Tensor& x, const model::AttentionShape& shape) {
  return Ops::repeat_keys(x, own_heads(shape));
}

at::Tensor TensorParallelOps::add_positions(const at::Tensor& x_ND, int row,
                                            const model::Sequence& sequence) {
  const OwnTokens& own = travel().tokens();
  return add_rows(
      x_ND, sequence.positions.narrow(0, own.first(), own.count()) + sequence.first_position, row);
}

at::Tensor TensorParallelOps::attention(const at::Tensor& qkv, const model::AttentionShape& shape,
                                        const model::Sequence& sequence, std::int64_t i_layer) {
  return ContextParallelOps::attention(qkv, own_heads(shape), sequence, i_layer);
}

at::Tensor TensorParallelOps::experts(const at::Tensor& x_ND, const at::Tensor& routed_ND,
                                      const model::ExpertRows& rows, const model::Experts& experts,
                                      const model::Sequence& sequence) {
  core::check(travel_ != nullptr, "a pass begins with the embedding");
  model::Experts own = experts;
  // Of experts that are tensors of their own each rank has some channels, also of other ranks'
  // experts; where one tensor holds all, each rank has some experts.
  if (const auto& split = table_.row(rows.down).split)
    own.d_ff = model::held_pieces(split->matrices.front(), tp_.size(), tp_.rank()).indices.count();
  return experts_of(x_ND, routed_ND, rows, own, sequence, travel_);
}

at::Tensor TensorParallelOps::all_tokens(const at::Tensor& x_ND) {
  return travel().gather(x_ND)->wait();
}

model::IndexRange TensorParallelOps::own_vocabulary(int row) const {
  const model::Parameter& of = table_.row(row);
  if (!of.held) return {0, of.shape[0]};
  const core::Box& box = of.held->boxes.front();
  return {box.begin[0], box.begin[0] + box.extent[0]};
}

namespace {

/// Tokens by this rank's part of the vocabulary.
struct OwnIds {
  at::Tensor id_N;        ///< within the part; 0 where it is another rank's
  at::Tensor is_other_N;  ///< bool
};

OwnIds own_ids(const at::Tensor& ids_N, model::IndexRange own) {
  const at::Tensor is_other = ids_N.lt(own.first).logical_or(ids_N.ge(own.last));
  return {(ids_N - own.first).masked_fill_(is_other, 0), is_other};
}

}  // namespace

at::Tensor TensorParallelOps::embedding(const at::Tensor& ids_N, int row) {
  begin_pass(ids_N.size(0));
  const OwnIds ids = own_ids(ids_N, own_vocabulary(row));
  at::Tensor x_ND = Ops::embedding(ids.id_N, row);
  x_ND.masked_fill_(ids.is_other_N.unsqueeze(1), 0);
  return travel().scatter(x_ND)->wait();
}

void TensorParallelOps::embedding_backward(const at::Tensor& ids_N, const at::Tensor& d_x_ND,
                                           int row) {
  if (weights_.trained({row, 1}).empty() && Ops::projection({row, 1}).adapted().empty()) return;
  const OwnIds ids = own_ids(ids_N, own_vocabulary(row));
  const at::Tensor d_x = travel().gather(d_x_ND)->wait();
  Ops::embedding_backward(ids.id_N, d_x.masked_fill_(ids.is_other_N.unsqueeze(1), 0), row);
}

namespace {

/// [rows, N] of every rank -> [ranks, rows, N]; fp32.
at::Tensor gathered(comm::Group& tp, const at::Tensor& own) {
  const at::Tensor all = at::empty({tp.size(), own.size(0), own.size(1)}, own.options());
  Started(tp, {own, all}, [&] {
    return tp.all_gather(core::DType::f32, own.data_ptr(), all.data_ptr(), own.numel());
  }).wait();
  return all;
}

}  // namespace

at::Tensor TensorParallelOps::logits(const at::Tensor& x_ND, int row) {
  // Parts of the vocabulary differ by one at most.
  const model::Parameter& of = table_.row(row);
  const std::int64_t vocabulary = of.held ? of.held->shape[0] : of.shape[0];
  const std::int64_t most = (vocabulary + tp_.size() - 1) / tp_.size();
  const at::Tensor own_VN = Ops::logits(x_ND, row).t();
  const at::Tensor sent = at::zeros({most, x_ND.size(0)}, own_VN.options());
  sent.narrow(0, 0, own_VN.size(0)).copy_(own_VN);
  const at::Tensor all = gathered(tp_, sent);
  std::vector<at::Tensor> parts;
  for (std::int64_t i = 0; i < tp_.size(); ++i) {
    const model::IndexRange range = model::held_pieces({vocabulary}, tp_.size(), i).indices;
    parts.push_back(all[i].narrow(0, 0, range.count()));
  }
  return at::cat(parts).t().contiguous();
}

model::LabelScores TensorParallelOps::pull_back_label_scores(const at::Tensor& x_ND,
                                                             const at::Tensor& labels_N, int row,
                                                             const at::Tensor& d_log_prob_N,
                                                             at::Tensor& d_x_ND) {
  const at::NoGradGuard no_autograd;
  at::Tensor terms_ND;
  model::LabelScores scores =
      Ops::pull_back_label_scores(all_tokens(x_ND), labels_N, row, d_log_prob_N, terms_ND);
  if (d_log_prob_N.defined()) d_x_ND = travel().scatter(terms_ND)->wait();
  return scores;
}

void TensorParallelOps::score_labels(int row, at::Tensor& logits_NV, const at::Tensor& labels_N,
                                     const at::Tensor& d_log_prob_N, model::LabelScores& scores) {
  const OwnIds label = own_ids(labels_N, own_vocabulary(row));
  const at::Tensor label_N1 = label.id_N.unsqueeze(1), is_other_N1 = label.is_other_N.unsqueeze(1);
  // Logits in fp32, where they are not; from here on in place.
  at::Tensor logits = logits_NV.to(at::kFloat);
  const at::Tensor largest = gathered(tp_, logits.amax(1).unsqueeze(0)).amax({0, 1});
  const at::Tensor of_label = logits.gather(1, label_N1).masked_fill_(is_other_N1, 0).squeeze(1);
  logits.sub_(largest.unsqueeze(1)).exp_();
  const at::Tensor sums = travel().sum(at::stack({logits.sum(1), of_label}));
  scores.is_first_N.copy_(sums[1].eq(largest));
  scores.log_prob_N.copy_(sums[1] - (largest + sums[0].log()));
  if (!d_log_prob_N.defined()) return;
  // d log p(label) / d logits = one at the label - probabilities.
  logits.div_(sums[0].unsqueeze(1)).neg_();
  logits.scatter_add_(1, label_N1, is_other_N1.logical_not().to(at::kFloat));
  logits.mul_(d_log_prob_N.unsqueeze(1));
  if (!logits.is_same(logits_NV)) logits_NV.copy_(logits);
}

}  // namespace finetune::shard
