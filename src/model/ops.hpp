#pragma once
// SPDX-License-Identifier: Apache-2.0
// What model code may compute with. Weights are not autograd leaves: every op that has one reads it
// through its row and adds the weight's gradient straight into the unit's flat gradient buffer.

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "model/architecture.hpp"
#include "model/decoder.hpp"
#include "model/path.hpp"
#include "model/sequence.hpp"
#include "model/weights.hpp"

namespace finetune::model {

/// Heads of a fused [N, (H + 2 Hkv) K] tensor of queries, keys and values, and what they see of
/// each other in addition to causality.
struct AttentionShape {
  std::int64_t num_heads = 0;     ///< H
  std::int64_t num_kv_heads = 0;  ///< Hkv
  std::int64_t head_size = 0;     ///< K
  Rotary rotary = Rotary::halves;
  std::int64_t window = 0;  ///< a token sees itself and the window - 1 before it; 0: all
  std::int64_t chunk = 0;   ///< a token sees its own chunk of positions only; 0: all

  std::int64_t num_channels() const { return (num_heads + 2 * num_kv_heads) * head_size; }
};

struct LossSum {
  double loss = 0;               ///< sum over trained targets of -log p(target), natural logarithm
  std::int64_t num_targets = 0;  ///< targets that count (label other than -100)
  at::Tensor correct;  ///< [N] bool: the target is the most likely token; true where not trained;
                       ///< on the labels' device
};

/// What the backward pass computes again instead of keeping it: nothing, or what costs no matrix
/// product (norms and SwiGLU; RoPE rotates in place, so there is nothing to save).
enum class Recompute { nothing, cheap };

/// Zeroes a part of the low-rank parts' inputs and scales up the rest. What is kept depends on the
/// key, the token and the channel alone: backward and a second forward pass see the same.
struct Dropout {
  double p = 0;
  std::uint64_t seed = 0;
  at::Tensor tokens_N;  ///< [N] int64: numbers that no two tokens of a run share
};

struct Projection;

/// One device's ops; `shard` may supply tensor-parallel or ring ones behind the same names.
/// Letters: N = B L tokens, D model, F feed-forward, H heads, K head size, V vocabulary.
class Ops {
 public:
  explicit Ops(Weights& weights, Path path = Path::kernels,
               Recompute recompute = Recompute::nothing)
      : weights_(weights), path_(path), recompute_(recompute) {}
  virtual ~Ops() = default;

  /// Dropout from now on; nothing: none. Stays as it is between a pass's forward and its backward.
  void set_dropout(std::optional<Dropout> dropout) { dropout_ = std::move(dropout); }

  /// ids_N int64 -> [N, D]. Its gradient is added by `embedding_backward`, not by autograd: the
  /// embedding has no differentiable input to hang a node on.
  virtual at::Tensor embedding(const at::Tensor& ids_N, int row);
  virtual void embedding_backward(const at::Tensor& ids_N, const at::Tensor& d_x_ND, int row);

  /// x_ND, weight [F, D] -> [N, F]. This and the products below include the low-rank parts beside
  /// their weights.
  virtual at::Tensor linear(const at::Tensor& x_ND, RowRange rows);

  /// x / rms(x) * weight. Source: Zhang & Sennrich 2019 (arXiv 1910.07467).
  virtual at::Tensor rms_norm(const at::Tensor& x_ND, int row, double eps);

  /// h = x + residual; returns {h, rms_norm(h)}.
  virtual std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x_ND,
                                                         const at::Tensor& residual_ND, int row,
                                                         double eps);

  /// linear(rms_norm(x)). Gradients are bitwise identical whatever is recomputed.
  virtual at::Tensor norm_linear(const at::Tensor& x_ND, int norm_row, RowRange rows, double eps);

  /// x + bias, in place: x_NF [N, F], bias [F].
  virtual at::Tensor add_bias(const at::Tensor& x_NF, RowRange rows);

  /// Norm of every query and key head of qkv over its K channels. Rows [K], or -1: weightless.
  virtual at::Tensor head_norm(const at::Tensor& qkv, const AttentionShape& shape, int query_row,
                               int key_row, double eps);

  /// Multiplies the queries of qkv by a factor that grows with the token's position, in place.
  virtual at::Tensor tune_temperature(const at::Tensor& qkv, const AttentionShape& shape,
                                      const Sequence& sequence, const Temperature& temperature);

  /// Feed-forward of every token by those experts that the router chooses for it, weighted:
  /// x_ND -> [N, D]. Without the shared expert. With `sequence.balance`, its gradient is added.
  virtual at::Tensor experts(const at::Tensor& x_ND, const ExpertRows& rows, const Experts& experts,
                             const Sequence& sequence);

  /// h = x + residual; returns {h, linear(rms_norm(h))}.
  virtual std::pair<at::Tensor, at::Tensor> add_norm_linear(const at::Tensor& x_ND,
                                                            const at::Tensor& residual_ND,
                                                            int norm_row, RowRange rows,
                                                            double eps);

  /// linear(swiglu(gate_up)): [N, 2 F], weight [D, F] -> [N, D].
  virtual at::Tensor swiglu_linear(const at::Tensor& gate_up, RowRange rows);

  /// Rotates queries and keys of qkv by position (in place: qkv is not usable afterwards) and
  /// attends causally within each sample. Nobody sees padding, whose output is zero or unspecified.
  /// [N, (H + 2 Hkv) K] -> [N, H K]. With a cache, appends to the layer's keys
  /// and values.
  virtual at::Tensor attention(const at::Tensor& qkv, const AttentionShape& shape,
                               const Sequence& sequence, std::int64_t i_layer);

  /// silu(gate) * up. gate_up [N, 2 F], gate first -> [N, F]. Source: Shazeer 2020 (arXiv
  /// 2002.05202).
  virtual at::Tensor swiglu(const at::Tensor& gate_up);

  /// Logits of a few tokens: x_ND, weight [V, D] -> [N, V] fp32. No gradient.
  virtual at::Tensor logits(const at::Tensor& x_ND, int row);

  /// Product with the head and cross entropy over chunks of tokens; the [N, V] logits never exist
  /// whole. labels_N int64, -100 = not trained.
  LossSum loss(const at::Tensor& x_ND, const at::Tensor& labels_N, int row);

  /// As `loss`, and writes d(scale * loss sum)/dx to d_x_ND while adding the head's weight
  /// gradient.
  LossSum loss_and_gradient(const at::Tensor& x_ND, const at::Tensor& labels_N, int row,
                            double scale, at::Tensor& d_x_ND);

 protected:
  Weights& weights_;
  Path path_;
  Recompute recompute_;

 private:
  Projection projection(RowRange rows);
  LossSum chunked_loss(const at::Tensor& x_ND, const at::Tensor& labels_N, int row, double scale,
                       at::Tensor* d_x_ND);
  /// Of tokens that all have a label; adds to `sum`, fills `d_x_ND` if it is defined, returns the
  /// hits.
  at::Tensor trained_loss(const at::Tensor& x_ND, const at::Tensor& labels_N, int row, double scale,
                          const at::Tensor& d_x_ND, LossSum& sum);

  std::optional<Dropout> dropout_;
};

}  // namespace finetune::model
