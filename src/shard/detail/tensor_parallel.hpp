#pragma once
// SPDX-License-Identifier: Apache-2.0
// Ops of a rank that holds a part of every matrix: the beginning of tensor parallelism.

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>

#include "comm/group.hpp"
#include "model/ops.hpp"
#include "model/parameter_table.hpp"
#include "model/part.hpp"

namespace finetune::shard {

/// The same on every rank of `tp`, or a part of it: activations [N, D] between blocks are whole,
/// queries, keys, values and the feed-forward's channels are this rank's. `weights` gives this
/// rank's part of each row, cut along the dim that the row's split says.
///
/// Products with rows split on dim 0 leave their outputs in parts, and their input's gradient is
/// summed over the ranks; those on dim 1 read parts and sum their outputs. Source: Shoeybi et al.
/// 2019, Megatron-LM (arXiv 1909.08053). The head is split over the vocabulary.
/// A gradient of a weight that every rank has whole is this rank's term where its input is in parts
/// (norms of heads), and whole elsewhere.
///
/// Collective on `tp`: every op with weights but norms, forward or backward. All ranks call the
/// same ops in the same order. Throws: what `tp` throws.
class TensorParallelOps : public model::Ops {
 public:
  /// `table` is this rank's part (model::part_of); all three outlive this.
  TensorParallelOps(model::Weights& weights, const model::ParameterTable& table, comm::Group& tp,
                    model::Path path = model::Path::kernels,
                    model::Recompute recompute = model::Recompute::nothing);

  at::Tensor embedding(const at::Tensor& ids_N, int row) override;
  void embedding_backward(const at::Tensor& ids_N, const at::Tensor& d_x_ND, int row) override;
  at::Tensor linear(const at::Tensor& x_ND, model::RowRange rows) override;
  at::Tensor norm_linear(const at::Tensor& x_ND, int norm_row, model::RowRange rows,
                         double eps) override;
  std::pair<at::Tensor, at::Tensor> add_norm_linear(const at::Tensor& x_ND,
                                                    const at::Tensor& residual_ND, int norm_row,
                                                    model::RowRange rows, double eps) override;
  at::Tensor swiglu_linear(const at::Tensor& gate_up, model::RowRange rows) override;
  at::Tensor head_norm(const at::Tensor& qkv, const model::AttentionShape& shape, int query_row,
                       int key_row, double eps) override;
  at::Tensor tune_temperature(const at::Tensor& qkv, const model::AttentionShape& shape,
                              const model::Sequence& sequence,
                              const model::Temperature& temperature) override;
  at::Tensor attention(const at::Tensor& qkv, const model::AttentionShape& shape,
                       const model::Sequence& sequence, std::int64_t i_layer) override;

 protected:
  /// Each rank has the logits of its part of the vocabulary; what a token needs of the others is
  /// its largest logit, its sum of exponentials and its label's logit. Computed in fp32.
  void score_labels(int row, at::Tensor& logits_NV, const at::Tensor& labels_N,
                    const at::Tensor& d_log_prob_N, model::LabelScores& scores) override;
  void complete_head_gradient(at::Tensor& d_x_ND) override;

 private:
  /// Whole in, whole out; the gradient is summed over the ranks.
  at::Tensor shared(const at::Tensor& x_ND) const;
  /// Sums the ranks' terms; the gradient is the same for all.
  at::Tensor summed(const at::Tensor& x_ND) const;
  model::IndexRange own_tokens_of_vocabulary(int row) const;
  bool sums_outputs(model::RowRange rows) const;
  model::AttentionShape own_heads(model::AttentionShape shape) const;

  const model::ParameterTable& table_;
  comm::Group& tp_;
};

}  // namespace finetune::shard
