#pragma once
// SPDX-License-Identifier: Apache-2.0
// The seam between the code of a model and what runs it: the ops that a model is written in.
// `Ops` computes them on a device's tensors, `CostOps` on the sizes of tensors, for plans. An op
// that one of them lacks does not compile.

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "model/architecture.hpp"
#include "model/detail/decoder_rows.hpp"

namespace finetune::model {

/// A norm of rows.
struct Norm {
  NormRows rows = {};
  double eps = 1e-5;
  NormKind kind = {};
};

/// Heads of a fused [N, (H + 2 Hkv) K] tensor of queries, keys and values, and what they see of
/// each other in addition to causality.
struct AttentionShape {
  std::int64_t num_heads = 0;     ///< H
  std::int64_t num_kv_heads = 0;  ///< Hkv
  std::int64_t head_size = 0;     ///< K
  Rotary rotary = Rotary::halves;
  std::int64_t rotary_size = 0;  ///< channels of a head that turn; 0: all
  std::int64_t window = 0;       ///< a token sees itself and the window - 1 before it; 0: all
  std::int64_t chunk = 0;        ///< a token sees its own chunk of positions only; 0: all
  double softcap = 0;            ///< c of scores c tanh(x / c); 0: none
  int sinks = -1;                ///< row of the heads' sinks [H] (Architecture::has_sinks)

  std::int64_t num_channels() const { return (num_heads + 2 * num_kv_heads) * head_size; }
};

/// Norms of heads. Those of values have no weight.
struct HeadNorms {
  Norm of_queries;
  Norm of_keys;
  bool of_values = false;
};

/// How queries, keys and values that are made of latents lie in a fused tensor of H heads each, of
/// K channels: of queries and keys those that turn come first, and zeros fill up what is less than
/// K.
struct LatentHeads {
  std::int64_t num_heads = 0;   ///< H
  std::int64_t head_size = 0;   ///< K
  std::int64_t turned = 0;      ///< R
  std::int64_t unturned = 0;    ///< U
  std::int64_t value_size = 0;  ///< V
  double query_scale = 1;       ///< of queries, where scores are not divided by sqrt(K) alone
};

/// What the backward pass computes again instead of keeping it: nothing, or what costs no matrix
/// product (norms and activations; RoPE rotates in place, so there is nothing to save).
enum class Recompute { nothing, cheap };

/// Tokens of the head's product that have their logits at the same time. Few chunks keep the
/// products large, many keep the logits small: 1,024 lose nothing measurable against one chunk.
inline constexpr std::int64_t head_chunk_tokens = 1024;

/// Tokens whose outputs are in fp32 at the same time where the gradient of sinks is computed.
inline constexpr std::int64_t sink_tokens_at_once = 1024;

/// Keys and values of other ranks that a layer fetches, in bytes: from so many on they go round a
/// ring instead, where the way is left open.
inline constexpr std::int64_t ring_from_bytes = std::int64_t{32} << 20;

/// What the head says of each token's label.
template <typename Tensor>
struct Scores {
  Tensor log_prob_N;  ///< [N] fp32: log p(label), natural logarithm; 0 where the label is -100
  Tensor is_first_N;  ///< [N] bool: no token is more likely than the label; true where it is -100
};

/// `Values` says what the ops are computed on: its `Tensor`, and its `Sequence`, which is what
/// attention has to know about the tokens of a pass.
/// Letters: N = B L tokens, D model, F feed-forward, H heads, K head size, V vocabulary.
template <typename Values>
class BasicOps {
 public:
  using Tensor = typename Values::Tensor;
  using Sequence = typename Values::Sequence;

  virtual ~BasicOps() = default;

  /// ids_N int64 -> [N, D]. Its gradient is added by a function of its own, not by autograd: the
  /// embedding has no differentiable input to hang a node on.
  virtual Tensor embedding(const Tensor& ids_N, int row) = 0;

  /// x_ND, weight [F, D] -> [N, F]. This and the products below include what adapters put on top
  /// of their weights.
  virtual Tensor linear(const Tensor& x_ND, RowRange rows) = 0;

  /// x / rms(x) * weight, or the same of x less its mean, and a bias where there is one.
  /// Source: Zhang & Sennrich 2019 (arXiv 1910.07467), Ba et al. 2016 (arXiv 1607.06450).
  virtual Tensor norm(const Tensor& x_ND, const Norm& norm) = 0;

  /// h = x + residual; returns {h, norm(h)}.
  virtual std::pair<Tensor, Tensor> add_norm(const Tensor& x_ND, const Tensor& residual_ND,
                                             const Norm& norm) = 0;

  /// linear(norm(x)). Gradients are bitwise identical whatever is recomputed.
  virtual Tensor norm_linear(const Tensor& x_ND, const Norm& norm, RowRange rows) = 0;

  /// x + bias, in place: x_NF [N, F], bias [F], as an adapter changes it.
  virtual Tensor add_bias(const Tensor& x_NF, RowRange rows) = 0;

  /// Norm of every query and key head of qkv over its K channels. Rows [K], or -1: weightless.
  virtual Tensor head_norm(const Tensor& qkv, const AttentionShape& shape,
                           const HeadNorms& norms) = 0;

  /// Rotates queries and keys of qkv by position, in place, where attention does not.
  virtual Tensor rotate(const Tensor& qkv, const AttentionShape& shape,
                        const Sequence& sequence) = 0;

  /// Channels of x_NF as tensors of their own, of so many each, which are F together.
  virtual std::vector<Tensor> split(const Tensor& x_NF,
                                    std::initializer_list<std::int64_t> widths) = 0;

  /// q [N, H (U + R)], those that turn last; kv [N, H (U + V)], keys first; key_NR, which all heads
  /// share -> fused qkv [N, 3 H K].
  virtual Tensor join_heads(const Tensor& q, const Tensor& kv, const Tensor& key_NR,
                            const LatentHeads& heads) = 0;

  /// x [N, F] and then y [N, G] of each token: [N, F + G].
  virtual Tensor join(const Tensor& x, const Tensor& y) = 0;

  /// The last `size` channels: [N, F] -> [N, size].
  virtual Tensor last_channels(const Tensor& x, std::int64_t size) = 0;

  /// The first `size` of each of `num` heads' channels: [N, num K] -> [N, num size].
  virtual Tensor first_channels(const Tensor& x, std::int64_t num, std::int64_t size) = 0;

  /// Multiplies the queries of qkv by a factor that grows with the token's position, in place.
  virtual Tensor tune_temperature(const Tensor& qkv, const AttentionShape& shape,
                                  const Sequence& sequence, const Temperature& temperature) = 0;

  /// Feed-forward of every token by those experts that the router chooses for it, weighted:
  /// x_ND -> [N, D]. The router reads routed_ND, or x where there is none (Tensor{}). Without the
  /// shared expert. With a sequence's `balance`, its gradient is added.
  virtual Tensor experts(const Tensor& x_ND, const Tensor& routed_ND, const ExpertRows& rows,
                         const Experts& experts, const Sequence& sequence) = 0;

  /// h = x + residual; returns {h, linear(norm(h))}.
  virtual std::pair<Tensor, Tensor> add_norm_linear(const Tensor& x_ND, const Tensor& residual_ND,
                                                    const Norm& norm, RowRange rows) = 0;

  /// linear(activated): of gate_up [N, 2 F], gate first, function(gate) * up; without a gate of
  /// [N, F] the function. Weight [D, F] -> [N, D]. Source: Shazeer 2020 (arXiv 2002.05202).
  /// `parameters`: FeedForwardRows::activation.
  virtual Tensor activated_linear(const Tensor& gate_up, const Activation& activation,
                                  RowRange parameters, RowRange rows) = 0;

  /// x sigmoid(gate). x_ND; gate [N, 1], or [N, D].
  virtual Tensor gate(const Tensor& x_ND, const Tensor& gate) = 0;

  /// Queries, each with gates behind it, keys and values [N, (2 H + 2 Hkv) K], parted:
  /// {qkv [N, (H + 2 Hkv) K], gates [N, H K]}.
  virtual std::pair<Tensor, Tensor> part_gates(const Tensor& x, const AttentionShape& shape) = 0;

  /// What each key head has together, its queries, its key and its value [N, Hkv (H / Hkv + 2) K],
  /// as queries, keys and values: [N, (H + 2 Hkv) K].
  virtual Tensor sort_heads(const Tensor& x, const AttentionShape& shape) = 0;

  /// Queries and keys [N, (H + Hkv) K], and once more the keys: [N, (H + 2 Hkv) K].
  virtual Tensor repeat_keys(const Tensor& x, const AttentionShape& shape) = 0;

  /// x times the number that `row` [1] holds, which is not trained.
  virtual Tensor scale_by(const Tensor& x_ND, int row) = 0;

  /// x + a row of `row` [positions, D] for each token's position in its sample.
  virtual Tensor add_positions(const Tensor& x_ND, int row, const Sequence& sequence) = 0;

  /// What value heads read of their memory, normed and gated: inputs [N, channels + Hv (V + 2)] ->
  /// [N, Hv V]. Nothing is remembered from sample to sample. With a cache, goes on with the layer's
  /// memory. See kernels/delta_rule.hpp.
  virtual Tensor delta_rule(const Tensor& x_NI, const DeltaRows& rows, const DeltaHeads& heads,
                            double norm_eps, const Sequence& sequence, std::int64_t i_layer) = 0;

  /// What heads read of their states, gated, and normed by groups: inputs [N, H K + channels + H]
  /// -> [N, H K]. Nothing is carried from sample to sample. With a cache, goes on with the layer's
  /// states. See kernels/state_space.hpp.
  virtual Tensor state_space(const Tensor& x_NI, const StateRows& rows, const StateHeads& heads,
                             double norm_eps, const Sequence& sequence, std::int64_t i_layer) = 0;

  /// Rotates queries and keys of qkv by position (in place: qkv is not usable afterwards) and
  /// attends causally within each sample. Nobody sees padding, whose output is zero or unspecified.
  /// [N, (H + 2 Hkv) K] -> [N, H K]. With a cache, appends to the layer's keys and values.
  virtual Tensor attention(const Tensor& qkv, const AttentionShape& shape, const Sequence& sequence,
                           std::int64_t i_layer) = 0;

  /// factor * x.
  virtual Tensor scale(const Tensor& x_ND, double factor) = 0;

  /// x + y. Shapes: equal.
  virtual Tensor add(const Tensor& x_ND, const Tensor& y_ND) = 0;

  /// Product with the head, weight [V, D], and log-probabilities of labels_N (int64, -100: none)
  /// over chunks of tokens: the [N, V] logits never exist whole. Writes the gradient of the sum of
  /// d_log_prob_N (fp32) * log_prob_N to d_x_ND and adds that of the head's weight. An objective
  /// that knows its gradient per token beforehand needs this op alone.
  virtual Scores<Tensor> pull_back_label_scores(const Tensor& x_ND, const Tensor& labels_N, int row,
                                                const Tensor& d_log_prob_N, Tensor& d_x_ND) = 0;
};

}  // namespace finetune::model
