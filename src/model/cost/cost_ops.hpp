#pragma once
// SPDX-License-Identifier: Apache-2.0
// The ops of a model on the sizes of tensors: what each keeps, holds and does, written on a tape.
// Where `Ops` changes, its twin here changes with it.

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "model/cost/cost.hpp"
#include "model/cost/detail/cost_tape.hpp"
#include "model/cost/projection_shape.hpp"
#include "model/detail/basic_ops.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

/// Sequences that are all full.
struct SequenceSize {
  std::int64_t batch = 1;   ///< B
  std::int64_t length = 0;  ///< L
  /// Of the samples packed into them, whose tokens see those of their own; 0: one fills each.
  std::int64_t sample = 0;

  std::int64_t num_tokens() const { return batch * length; }
};

struct OnSizes {
  using Tensor = TensorSize;
  using Sequence = SequenceSize;
};

/// A rank that shares the model with others (CostSettings::share) has its own tokens of the
/// residual stream, its own heads, channels and experts in between, and its own part of every
/// sequence.
///
/// Work: 2 flops per weight and token forward, 2 for the gradient of the input, 2 for that of the
/// weight where it is trained, so 6 or, frozen, 4 (Kaplan et al. 2020, arXiv 2001.08361); low-rank
/// parts on top; of experts the chosen ones. Attention: 4 flops per head channel and visible token
/// forward, 10 backward (Dao 2023, arXiv 2307.08691). A packed weight is unpacked whenever it is
/// read.
class CostOps final : public BasicOps<OnSizes> {
 public:
  /// `table` outlives this; rows that it does not have are not asked for.
  CostOps(const ParameterTable& table, const CostSettings& settings);

  /// [rows, columns] of the computation's dtype, which no op has written yet.
  TensorSize tensor(std::int64_t rows, std::int64_t columns);
  const CostTape& tape() const { return tape_; }

  TensorSize embedding(const TensorSize& ids_N, int row) override;
  TensorSize linear(const TensorSize& x_ND, RowRange rows) override;
  TensorSize norm(const TensorSize& x_ND, const Norm& norm) override;
  std::pair<TensorSize, TensorSize> add_norm(const TensorSize& x_ND, const TensorSize& residual_ND,
                                             const Norm& norm) override;
  TensorSize norm_linear(const TensorSize& x_ND, const Norm& norm, RowRange rows) override;
  TensorSize add_bias(const TensorSize& x_NF, RowRange rows) override;
  TensorSize scale(const TensorSize& x_ND, double factor) override;
  TensorSize head_norm(const TensorSize& qkv, const AttentionShape& shape,
                       const HeadNorms& norms) override;
  TensorSize rotate(const TensorSize& qkv, const AttentionShape& shape,
                    const SequenceSize& sequence) override;
  std::vector<TensorSize> split(const TensorSize& x_NF,
                                std::initializer_list<std::int64_t> widths) override;
  TensorSize join_heads(const TensorSize& q, const TensorSize& kv, const TensorSize& key_NR,
                        const LatentHeads& heads) override;
  TensorSize join(const TensorSize& x, const TensorSize& y) override;
  TensorSize last_channels(const TensorSize& x, std::int64_t size) override;
  TensorSize first_channels(const TensorSize& x, std::int64_t num, std::int64_t size) override;
  TensorSize tune_temperature(const TensorSize& qkv, const AttentionShape& shape,
                              const SequenceSize& sequence,
                              const Temperature& temperature) override;
  TensorSize experts(const TensorSize& x_ND, const TensorSize& routed_ND, const ExpertRows& rows,
                     const Experts& experts, const SequenceSize& sequence) override;
  std::pair<TensorSize, TensorSize> add_norm_linear(const TensorSize& x_ND,
                                                    const TensorSize& residual_ND, const Norm& norm,
                                                    RowRange rows) override;
  TensorSize activated_linear(const TensorSize& gate_up, const Activation& activation,
                              RowRange parameters, RowRange rows) override;
  TensorSize gate(const TensorSize& x_ND, const TensorSize& gate) override;
  std::pair<TensorSize, TensorSize> part_gates(const TensorSize& x,
                                               const AttentionShape& shape) override;
  TensorSize sort_heads(const TensorSize& x, const AttentionShape& shape) override;
  TensorSize repeat_keys(const TensorSize& x, const AttentionShape& shape) override;
  TensorSize scale_by(const TensorSize& x_ND, int row) override;
  TensorSize add_positions(const TensorSize& x_ND, int row, const SequenceSize& sequence) override;
  TensorSize delta_rule(const TensorSize& x_NI, const DeltaRows& rows, const DeltaHeads& heads,
                        double norm_eps, const SequenceSize& sequence,
                        std::int64_t i_layer) override;
  TensorSize state_space(const TensorSize& x_NI, const StateRows& rows, const StateHeads& heads,
                         double norm_eps, const SequenceSize& sequence,
                         std::int64_t i_layer) override;
  TensorSize attention(const TensorSize& qkv, const AttentionShape& shape,
                       const SequenceSize& sequence, std::int64_t i_layer) override;
  TensorSize add(const TensorSize& x_ND, const TensorSize& y_ND) override;
  Scores<TensorSize> pull_back_label_scores(const TensorSize& x_ND, const TensorSize& labels_N,
                                            int row, const TensorSize& d_log_prob_N,
                                            TensorSize& d_x_ND) override;

 private:
  TensorSize narrow(const TensorSize& x, std::int64_t columns);
  MemoryPass pass(std::int64_t elements, double bytes_per_element, double operations) const;
  OpCost norm_cost(const TensorSize& x_ND, const Norm& norm) const;
  TensorSize statistics(std::int64_t rows, const Norm& norm);
  std::int64_t norm_temporaries(const TensorSize& x_ND, const Norm& norm) const;
  OpCost norm_linear_cost(const TensorSize& h_ND, const Norm& norm, RowRange rows);
  void keep_or_compute_again(OpCost& op, const TensorSize& between, bool is_needed) const;
  void add_projection(OpCost& op, const ProjectionCost& projection) const;
  void add_activation_work(OpCost& op, std::int64_t elements,
                           const Activation& activation = {}) const;
  std::int64_t activation_bytes(std::int64_t elements, const Activation& activation = {}) const;

  /// Where ranks share matrices, each has its own tokens between products: `tokens` / ranks.
  bool shares_tokens() const { return settings_.share.place.tp > 1; }
  std::int64_t own_tokens(std::int64_t tokens) const;
  std::int64_t all_tokens(std::int64_t own) const;
  Travel travel(Sharers among, Travel::Kind kind, std::int64_t bytes) const;
  bool sums_outputs(RowRange rows) const;
  bool gathers_inputs(RowRange rows) const;
  std::int64_t own_number(std::int64_t num_heads) const;
  void gather_inputs(OpCost& op, const TensorSize& x_nD, const ProjectionShape& shape) const;
  void scatter_outputs(OpCost& op, const TensorSize& y_nD) const;
  void share_head(OpCost& op, const TensorSize& x_nD) const;
  void add_head_parts(OpCost& op, int row, std::int64_t tokens, std::int64_t chunk);
  AttentionShape own_heads(AttentionShape shape) const;
  /// Bytes of attention whose keys several ranks have.
  struct SharedKeys {
    std::int64_t channels = 0;      ///< of a token's keys and values
    std::int64_t token_bytes = 0;   ///< of these, as they travel
    std::int64_t outputs = 0;       ///< in fp32, more than of the output that is kept
    std::int64_t output_piece = 0;  ///< a piece's output, before and while it is merged
    std::int64_t d_outputs = 0;     ///< the queries' gradient in fp32
    std::int64_t d_piece = 0;       ///< of a piece's queries
  };
  SharedKeys shared_keys(const AttentionShape& shape, std::int64_t tokens,
                         const SequenceSize& sequence) const;
  void fetch_keys(OpCost& op, const AttentionShape& shape, std::int64_t tokens,
                  const SequenceSize& sequence) const;
  void pass_keys_on(OpCost& op, const AttentionShape& shape, std::int64_t tokens,
                    const SequenceSize& sequence) const;
  void add_sinks(OpCost& op, const AttentionShape& shape, const TensorSize& out) const;
  void share_keys(OpCost& op, const AttentionShape& shape, std::int64_t tokens,
                  const SequenceSize& sequence) const;

  /// What a rank has of a layer's experts, and what it gets to compute.
  struct OwnExperts {
    ProjectionShape gate_up = {};
    ProjectionShape down = {};
    std::int64_t num = 0;
    std::int64_t num_of_group = 0;  ///< of all ranks of ep
    std::int64_t choices = 0;
    std::int64_t d_ff = 0;
    std::int64_t inner = 0;  ///< channels of the first product
  };
  OwnExperts own_experts(const ExpertRows& rows, const Experts& experts, std::int64_t tokens) const;
  void add_expert_moments(OpCost& op, const OwnExperts& own, const Experts& experts,
                          std::int64_t tokens, std::int64_t width) const;
  void add_bias_work(OpCost& op, const OwnExperts& own, std::int64_t width) const;
  void add_expert_parts(OpCost& op, const OwnExperts& own) const;
  void share_experts(OpCost& op, const OwnExperts& own, const Experts& experts,
                     const TensorSize& x_nD) const;

  const ParameterTable& table_;
  CostSettings settings_;
  std::int64_t element_;
  PassBytes bytes_;
  CostTape tape_;
};

/// Tokens that a token sees, on average over a sequence of `length`.
double visible_tokens(const AttentionShape& shape, std::int64_t length);

}  // namespace finetune::model
