#pragma once
// SPDX-License-Identifier: Apache-2.0
// What model code may compute with. Weights are not autograd leaves: every op that has one reads it
// through its row and adds the weight's gradient straight into the unit's flat gradient buffer.

#include <ATen/ATen.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/detail/basic_ops.hpp"
#include "model/path.hpp"
#include "model/sequence.hpp"
#include "model/token_travel.hpp"
#include "model/weights.hpp"

namespace finetune::model {

/// On the labels' device.
using LabelScores = Scores<at::Tensor>;

/// Zeroes a part of the inputs that an adapter drops and scales up the rest. What is kept depends
/// on the key, the token and the channel alone: backward and a second forward pass see the same.
struct DropoutMask {
  double p = 0;
  std::uint64_t seed = 0;
  at::Tensor tokens_N;  ///< [N] int64: numbers that no two tokens of a run share
};

class ExpertDispatch;  // model/expert_dispatch.hpp
struct Projection;

/// On a device's tensors.
struct OnDevice {
  using Tensor = at::Tensor;
  using Sequence = model::Sequence;
};

/// One device's ops; `shard` may supply tensor-parallel or ring ones behind the same names.
class Ops : public BasicOps<OnDevice> {
 public:
  explicit Ops(Weights& weights, Path path = Path::kernels,
               Recompute recompute = Recompute::nothing)
      : weights_(weights), path_(path), recompute_(recompute) {}

  /// What the head's labels mean from now on.
  void set_outputs(const Outputs& outputs) { outputs_ = outputs; }

  /// Dropout from now on; nothing: none. Stays as it is between a pass's forward and its backward.
  void set_dropout(std::optional<DropoutMask> dropout) { dropout_ = std::move(dropout); }

  /// Whether products and biases include what adapters put on top of them; as dropout, the same
  /// for a whole pass. Without them the model computes as before the adapter, if nothing else of it
  /// is trained.
  void use_adapter(bool uses_adapter) { uses_adapter_ = uses_adapter; }

  at::Tensor embedding(const at::Tensor& ids_N, int row) override;
  virtual void embedding_backward(const at::Tensor& ids_N, const at::Tensor& d_x_ND, int row);
  at::Tensor linear(const at::Tensor& x_ND, RowRange rows) override;
  at::Tensor norm(const at::Tensor& x_ND, const Norm& norm) override;
  std::pair<at::Tensor, at::Tensor> add_norm(const at::Tensor& x_ND, const at::Tensor& residual_ND,
                                             const Norm& norm) override;
  at::Tensor norm_linear(const at::Tensor& x_ND, const Norm& norm, RowRange rows) override;
  at::Tensor add_bias(const at::Tensor& x_NF, RowRange rows) override;
  at::Tensor head_norm(const at::Tensor& qkv, const AttentionShape& shape,
                       const HeadNorms& norms) override;
  at::Tensor rotate(const at::Tensor& qkv, const AttentionShape& shape,
                    const Sequence& sequence) override;
  std::vector<at::Tensor> split(const at::Tensor& x_NF,
                                std::initializer_list<std::int64_t> widths) override;
  at::Tensor join_heads(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& key_NR,
                        const LatentHeads& heads) override;
  at::Tensor join(const at::Tensor& x, const at::Tensor& y) override;
  at::Tensor last_channels(const at::Tensor& x, std::int64_t size) override;
  at::Tensor first_channels(const at::Tensor& x, std::int64_t num, std::int64_t size) override;
  at::Tensor tune_temperature(const at::Tensor& qkv, const AttentionShape& shape,
                              const Sequence& sequence, const Temperature& temperature) override;
  at::Tensor experts(const at::Tensor& x_ND, const at::Tensor& routed_ND, const ExpertRows& rows,
                     const Experts& experts, const Sequence& sequence) override;
  std::pair<at::Tensor, at::Tensor> add_norm_linear(const at::Tensor& x_ND,
                                                    const at::Tensor& residual_ND, const Norm& norm,
                                                    RowRange rows) override;
  at::Tensor activated_linear(const at::Tensor& gate_up, const Activation& activation,
                              RowRange parameters, RowRange rows) override;
  at::Tensor gate(const at::Tensor& x_ND, const at::Tensor& gate) override;
  std::pair<at::Tensor, at::Tensor> part_gates(const at::Tensor& x,
                                               const AttentionShape& shape) override;
  at::Tensor sort_heads(const at::Tensor& x, const AttentionShape& shape) override;
  at::Tensor repeat_keys(const at::Tensor& x, const AttentionShape& shape) override;
  at::Tensor scale_by(const at::Tensor& x_ND, int row) override;
  at::Tensor add_positions(const at::Tensor& x_ND, int row, const Sequence& sequence) override;
  at::Tensor delta_rule(const at::Tensor& x_NI, const DeltaRows& rows, const DeltaHeads& heads,
                        double norm_eps, const Sequence& sequence, std::int64_t i_layer) override;
  at::Tensor state_space(const at::Tensor& x_NI, const StateRows& rows, const StateHeads& heads,
                         double norm_eps, const Sequence& sequence, std::int64_t i_layer) override;
  at::Tensor attention(const at::Tensor& qkv, const AttentionShape& shape, const Sequence& sequence,
                       std::int64_t i_layer) override;
  at::Tensor scale(const at::Tensor& x_ND, double factor) override;
  at::Tensor add(const at::Tensor& x_ND, const at::Tensor& y_ND) override;

  /// activated_linear without the product.
  at::Tensor activate(const at::Tensor& gate_up, const Activation& activation,
                      RowRange parameters = {-1, 0});

  /// Of activations between blocks all tokens, where ranks have some each. No gradient.
  virtual at::Tensor all_tokens(const at::Tensor& x_ND) { return x_ND; }

  /// Logits of a few tokens, which every rank has: x_ND, weight [V, D] -> [N, V] fp32. No gradient.
  virtual at::Tensor logits(const at::Tensor& x_ND, int row);

  /// As pull_back_label_scores, without a gradient.
  LabelScores label_scores(const at::Tensor& x_ND, const at::Tensor& labels_N, int row);
  LabelScores pull_back_label_scores(const at::Tensor& x_ND, const at::Tensor& labels_N, int row,
                                     const at::Tensor& d_log_prob_N, at::Tensor& d_x_ND) override;

 protected:
  /// add_positions, with the position of each token of x.
  at::Tensor add_rows(const at::Tensor& x_ND, const at::Tensor& positions_N, int row);
  /// `experts`, computed where `dispatch`, which outlives the pass, says. With `travel` x and what
  /// is returned are this rank's own tokens [n, D]: all are gathered, and their sums scattered.
  /// What is kept of x is own tokens; backward gathers them once more.
  at::Tensor experts_by(const ExpertDispatch& dispatch, const at::Tensor& x_ND,
                        const at::Tensor& routed_ND, const ExpertRows& rows, const Experts& experts,
                        const Sequence& sequence,
                        std::shared_ptr<const TokenTravel> travel = nullptr);
  /// Writes what a chunk's logits [N, V] with head `row` say of labels [N], of which none is -100.
  /// The score of a text's label, where it is one (model/outputs.hpp), stands for log p: the
  /// logarithm of its probability, the mean of those of each of several, minus the square of
  /// what a number is off, or a reward.
  /// With d_log_prob_N, the logits become the gradient of the sum of d_log_prob_N * log_prob_N.
  virtual void score_labels(int row, at::Tensor& logits_NV, const at::Tensor& labels_N,
                            const at::Tensor& d_log_prob_N, LabelScores& scores);
  /// What the product with `rows`, or the sum with them, is computed with.
  virtual Projection projection(RowRange rows);

  Weights& weights_;
  Path path_;
  Recompute recompute_;

 private:
  /// Of tokens that all have a label; fills `d_x_ND` if there is a gradient to pull back.
  LabelScores score_chunks(const at::Tensor& x_ND, const at::Tensor& labels_N,
                           const Projection& head, const at::Tensor& d_log_prob_N,
                           const at::Tensor& d_x_ND);
  /// The head's product with tokens at `places` of the pass; undefined: with all of them.
  Projection head_of(int row, const at::Tensor& places);

  std::optional<DropoutMask> dropout_;
  Outputs outputs_;
  bool uses_adapter_ = true;
};

}  // namespace finetune::model
