#pragma once
// SPDX-License-Identifier: Apache-2.0
// What model code may compute with. Weights are not autograd leaves: every op that has one reads it
// through its row and adds the weight's gradient straight into the unit's flat gradient buffer.

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>

#include "model/sequence.hpp"
#include "model/weights.hpp"

namespace finetune::model {

/// Heads of a fused [N, (H + 2 Hkv) K] tensor of queries, keys and values.
struct AttentionShape {
  std::int64_t num_heads = 0;     ///< H
  std::int64_t num_kv_heads = 0;  ///< Hkv
  std::int64_t head_size = 0;     ///< K
};

struct LossSum {
  double loss = 0;               ///< sum over trained targets of -log p(target), natural logarithm
  std::int64_t num_targets = 0;  ///< targets that count (label other than -100)
  at::Tensor correct;  ///< [N] bool: the target is the most likely token; true where not trained;
                       ///< on the labels' device
};

/// What computes the ops without weights, and the loss.
enum class Path {
  kernels,   ///< those of src/kernels for float and bfloat16 on the CPU; else as `composed`
  composed,  ///< compositions of ATen functions, on any device: lets a CPU run what a GPU runs
};

/// What the backward pass computes again instead of keeping it: nothing, or what costs no matrix
/// product (norms and SwiGLU; RoPE rotates in place, so there is nothing to save).
enum class Recompute { nothing, cheap };

/// One device's ops; `shard` may supply tensor-parallel or ring ones behind the same names.
/// Letters: N = B L tokens, D model, F feed-forward, H heads, K head size, V vocabulary.
class Ops {
 public:
  explicit Ops(Weights& weights, Path path = Path::kernels,
               Recompute recompute = Recompute::nothing)
      : weights_(weights), path_(path), recompute_(recompute) {}
  virtual ~Ops() = default;

  /// ids_N int64 -> [N, D]. Its gradient is added by `embedding_backward`, not by autograd: the
  /// embedding has no differentiable input to hang a node on.
  virtual at::Tensor embedding(const at::Tensor& ids_N, int row);
  virtual void embedding_backward(const at::Tensor& ids_N, const at::Tensor& d_x_ND, int row);

  /// x_ND, weight [F, D] -> [N, F].
  virtual at::Tensor linear(const at::Tensor& x_ND, RowRange rows);

  /// x / rms(x) * weight. Source: Zhang & Sennrich 2019 (arXiv 1910.07467).
  virtual at::Tensor rms_norm(const at::Tensor& x_ND, int row, double eps);

  /// h = x + residual; returns {h, rms_norm(h)}.
  virtual std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x_ND,
                                                         const at::Tensor& residual_ND, int row,
                                                         double eps);

  /// linear(rms_norm(x)). Gradients have the same bits whatever is computed again.
  virtual at::Tensor norm_linear(const at::Tensor& x_ND, int norm_row, RowRange rows, double eps);

  /// h = x + residual; returns {h, linear(rms_norm(h))}.
  virtual std::pair<at::Tensor, at::Tensor> add_norm_linear(const at::Tensor& x_ND,
                                                            const at::Tensor& residual_ND,
                                                            int norm_row, RowRange rows,
                                                            double eps);

  /// linear(swiglu(gate_up)): [N, 2 F], weight [D, F] -> [N, D].
  virtual at::Tensor swiglu_linear(const at::Tensor& gate_up, RowRange rows);

  /// Rotates queries and keys of qkv by position (in place: qkv is not usable afterwards) and
  /// attends causally. [N, (H + 2 Hkv) K] -> [N, H K]. With a cache, appends to the layer's keys
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
  LossSum chunked_loss(const at::Tensor& x_ND, const at::Tensor& labels_N, int row, double scale,
                       at::Tensor* d_x_ND);
  /// Of tokens that all have a label; adds to `sum`, fills `d_x_ND` if it is defined, returns the
  /// hits.
  at::Tensor trained_loss(const at::Tensor& x_ND, const at::Tensor& labels_N, int row, double scale,
                          const at::Tensor& d_x_ND, LossSum& sum);
};

}  // namespace finetune::model
