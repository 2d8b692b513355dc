#pragma once
// SPDX-License-Identifier: Apache-2.0
// Ops of a rank that holds a part of every matrix, and between blocks a part of the tokens.

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>

#include "comm/group.hpp"
#include "model/ops.hpp"
#include "model/parameter_table.hpp"
#include "model/part.hpp"
#include "model/projection.hpp"
#include "shard/detail/expert_parallel.hpp"
#include "shard/detail/own_tokens.hpp"

namespace finetune::shard {

/// Tensor and sequence parallelism: Shoeybi et al. 2019 (Megatron-LM, arXiv 1909.08053),
/// Korthikanti et al. 2022 (arXiv 2205.05198).
///
/// Letters: N tokens of a pass, n those that this rank has between blocks (OwnTokens). Activations
/// between blocks are [n, D]: residuals and norms are computed once. Products with rows split on
/// dim 0 gather their input's tokens and leave outputs [N, own channels]; those on dim 1 read such
/// and scatter the sums of their outputs. Queries, keys and values are of all tokens and own heads,
/// so attention knows nothing of it. The embedding and the head are split over the vocabulary.
///
/// A gradient of what several ranks hold (model::Part::num_holders) is this rank's term: what norms
/// and adapters give is of own tokens or of own channels. Sums over ranks are taken in the dtype of
/// the activations.
///
/// Collective on `tp`: every op with weights but norms and biases, forward or backward. All ranks
/// call the same ops in the same order. Throws: what `tp` throws.
class TensorParallelOps : public ExpertParallelOps {
 public:
  /// `table` is this rank's part (model::part_of); all three outlive this.
  TensorParallelOps(model::Weights& weights, const model::ParameterTable& table, comm::Group& tp,
                    model::Path path = model::Path::kernels,
                    model::Recompute recompute = model::Recompute::nothing,
                    const SharedWith& with = {});

  /// The tokens of the passes that follow, N. `embedding` begins a pass by itself.
  void begin_pass(std::int64_t num_tokens);

  /// ids_N -> [n, D]; gradients [n, D].
  at::Tensor embedding(const at::Tensor& ids_N, int row) override;
  void embedding_backward(const at::Tensor& ids_N, const at::Tensor& d_x_ND, int row) override;
  at::Tensor head_norm(const at::Tensor& qkv, const model::AttentionShape& shape,
                       const model::HeadNorms& norms) override;
  at::Tensor rotate(const at::Tensor& qkv, const model::AttentionShape& shape,
                    const model::Sequence& sequence) override;
  /// Own heads of all tokens, and what all heads share of own tokens: key [n, R].
  at::Tensor join_heads(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& key_nR,
                        const model::LatentHeads& heads) override;
  at::Tensor first_channels(const at::Tensor& x, std::int64_t num, std::int64_t size) override;
  at::Tensor tune_temperature(const at::Tensor& qkv, const model::AttentionShape& shape,
                              const model::Sequence& sequence,
                              const model::Temperature& temperature) override;
  std::pair<at::Tensor, at::Tensor> part_gates(const at::Tensor& x,
                                               const model::AttentionShape& shape) override;
  at::Tensor sort_heads(const at::Tensor& x, const model::AttentionShape& shape) override;
  at::Tensor repeat_keys(const at::Tensor& x, const model::AttentionShape& shape) override;
  at::Tensor add_positions(const at::Tensor& x_ND, int row,
                           const model::Sequence& sequence) override;
  at::Tensor attention(const at::Tensor& qkv, const model::AttentionShape& shape,
                       const model::Sequence& sequence, std::int64_t i_layer) override;
  /// Every rank routes all tokens and computes with its own channels of the experts. What a
  /// sequence's `balance` says of gradients counts as a term: one rank's scale is not 0.
  at::Tensor experts(const at::Tensor& x_ND, const at::Tensor& routed_ND,
                     const model::ExpertRows& rows, const model::Experts& experts,
                     const model::Sequence& sequence) override;

  at::Tensor all_tokens(const at::Tensor& x_ND) override;
  /// x [any number of tokens, D], the same on every rank -> all logits, on every rank.
  at::Tensor logits(const at::Tensor& x_ND, int row) override;
  /// x and d_x [n, D]; labels and scores of all N tokens, on every rank.
  model::LabelScores pull_back_label_scores(const at::Tensor& x_ND, const at::Tensor& labels_N,
                                            int row, const at::Tensor& d_log_prob_N,
                                            at::Tensor& d_x_ND) override;

 protected:
  /// Each rank has the logits of its part of the vocabulary; what a token needs of the others is
  /// its largest logit, its sum of exponentials and its label's logit. Computed in fp32.
  void score_labels(int row, at::Tensor& logits_NV, const at::Tensor& labels_N,
                    const at::Tensor& d_log_prob_N, model::LabelScores& scores) override;
  model::Projection projection(model::RowRange rows) override;

 private:
  const GroupTravel& travel() const;
  model::IndexRange own_vocabulary(int row) const;
  model::AttentionShape own_heads(model::AttentionShape shape) const;

  const model::ParameterTable& table_;
  comm::Group& tp_;
  std::shared_ptr<const GroupTravel> travel_;
};

}  // namespace finetune::shard
