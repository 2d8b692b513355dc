#pragma once
// SPDX-License-Identifier: Apache-2.0
// Forward and backward of the ops without weights, on tensors: the kernels of `kernels/` on the
// CPU, compositions of ATen functions elsewhere. Private to model.

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "model/ops.hpp"

namespace finetune::model {

/// {y [N, D], rstd [N] fp32}.
std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const at::Tensor& x_ND,
                                                    const at::Tensor& weight_D, double eps);

/// {h = x + residual, y, rstd}.
std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm_forward(const at::Tensor& x_ND,
                                                                    const at::Tensor& residual_ND,
                                                                    const at::Tensor& weight_D,
                                                                    double eps);

/// {dx (plus `d_residual_ND` if defined), dw [D] fp32}.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& dy_ND,
                                                     const at::Tensor& x_ND,
                                                     const at::Tensor& weight_D,
                                                     const at::Tensor& rstd_N,
                                                     const at::Tensor& d_residual_ND);

at::Tensor swiglu_forward(const at::Tensor& gate_up);
at::Tensor swiglu_backward(const at::Tensor& dy_NF, const at::Tensor& gate_up);

enum class RotateBy { angle, minus_angle };

/// Rotates queries and keys inside a contiguous qkv [N, (H + 2 Hkv) K], in place.
void rotate(at::Tensor& qkv, const AttentionShape& shape, const Sequence& sequence,
            RotateBy direction);

/// Views [B, heads, L, K] into a fused qkv.
struct QkvViews {
  at::Tensor q, k, v;
};
QkvViews split_heads(const at::Tensor& qkv, const AttentionShape& shape, std::int64_t batch,
                     std::int64_t length);

/// [B, H, L, K] -> [B L, H K].
at::Tensor merge_heads(const at::Tensor& out_BHLK);

enum class Causal { no, yes };

/// {out [B, H, L, K], logsumexp}.
std::tuple<at::Tensor, at::Tensor> attend(const QkvViews& views, Causal causal);

/// Gradient of the fused, rotated qkv.
at::Tensor attend_backward(const at::Tensor& d_out, const QkvViews& views, const at::Tensor& out,
                           const at::Tensor& logsumexp, const AttentionShape& shape);

/// Attention of new tokens to those in the cache and to themselves; appends to the cache. [N, H K].
at::Tensor attend_cached(const at::Tensor& qkv, const AttentionShape& shape,
                         const Sequence& sequence, std::int64_t i_layer);

/// Adds (or writes, where not `accumulate`) the rows of d_x to the rows `ids` of the gradient [V,
/// D].
void embedding_gradient(const at::Tensor& ids_N, const at::Tensor& d_x_ND,
                        const at::Tensor& gradient_VD, bool accumulate);

struct ChunkLoss {
  double loss = 0;
  std::int64_t num_targets = 0;
};

/// Cross entropy of logits [n, V] against labels [n]; with `scale`, the logits are overwritten with
/// the gradient of scale * loss. `correct` [n] bool: argmax hits, true where the label is -100.
ChunkLoss cross_entropy(at::Tensor& logits, const at::Tensor& labels, at::Tensor& correct,
                        std::optional<double> scale);

}  // namespace finetune::model
