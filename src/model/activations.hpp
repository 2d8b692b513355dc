#pragma once
// SPDX-License-Identifier: Apache-2.0
// Forward and backward of the ops without weights, on tensors: the kernels of `kernels/` where
// they compute, compositions of ATen functions elsewhere.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "kernels/composed.hpp"
#include "model/ops.hpp"

namespace finetune::model {

/// Zeroes and scales elements of x_ND (see DropoutMask); `stream` distinguishes matrices. The
/// channels of x_ND count from `first_channel`.
at::Tensor dropout(const at::Tensor& x_ND, const DropoutMask& dropout, int stream, Path path,
                   std::int64_t first_channel = 0);

/// [N, 2 F] with a gate, which comes first, else [N, F] -> [N, F].
at::Tensor activate(const at::Tensor& gate_up, const Activation& activation, Path path);
at::Tensor activate_backward(const at::Tensor& dy_NF, const at::Tensor& gate_up,
                             const Activation& activation, Path path);

enum class RotateBy { angle, minus_angle };

/// Each one number: alpha before softplus, of inputs above 0 and of others.
struct XieluNumbers {
  at::Tensor positive, negative, beta, eps;
};

/// x > 0: alpha x^2 + beta x; else alpha (e^min(x, eps) - 1 - x) + beta x. [N, F].
at::Tensor xielu(const at::Tensor& x_NF, const XieluNumbers& numbers);

struct XieluGradients {
  at::Tensor x;                   ///< [N, F]
  at::Tensor positive, negative;  ///< fp32, one number each
};
XieluGradients xielu_backward(const at::Tensor& dy_NF, const at::Tensor& x_NF,
                              const XieluNumbers& numbers);

/// Rotates queries and keys inside a contiguous qkv [N, (H + 2 Hkv) K], in place.
void rotate(at::Tensor& qkv, const AttentionShape& shape, const Sequence& sequence,
            RotateBy direction, Path path);

/// Views [B, heads, L, K] into a fused qkv.
struct QkvViews {
  at::Tensor q, k, v;
};
QkvViews split_heads(const at::Tensor& qkv, const AttentionShape& shape, std::int64_t batch,
                     std::int64_t length);

/// [B, H, L, K] -> [B L, H K].
at::Tensor merge_heads(const at::Tensor& out_BHLK);

using kernels::composed::Visible;

/// Attention and what its backward pass needs. Undefined: what the kernel that ran does not use.
struct Attended {
  at::Tensor out;        ///< [B, H, L, K]
  at::Tensor logsumexp;  ///< as the kernel likes it
  at::Tensor philox_seed, philox_offset;
  std::int64_t kernel = 0;  ///< which one ran, for the gradients
};

/// Attends with the fused kernel that there is for the processor, dtype and head size; on a GPU by
/// products and a softmax (a pass has gpu_attention.hpp). Query heads may share key heads in
/// groups. A mask is fp32.
Attended attend(const QkvViews& views, const Visible& visible, Path path);

/// Attended::kernel of what `attend` would run.
std::int64_t kernel_for(const QkvViews& views, const Visible& visible, Path path);

/// d_out [B, H, L, K] -> gradients of q, k and v, shaped like them.
QkvViews attend_backward(const at::Tensor& d_out, const QkvViews& views, const Attended& attended,
                         const Visible& visible);

class Sinks;  // model/attention_sinks.hpp

/// Attention of a pass: on a GPU by one launch where a kernel takes it; of whole rows at once where
/// every row is one sample and sees all of itself; else piece by piece.
struct AttendedPass {
  at::Tensor out;                ///< [N, H K]
  std::vector<Attended> pieces;  ///< `out` undefined: it is part of the whole one's
};
AttendedPass attend_pass(const at::Tensor& qkv, const AttentionShape& shape,
                         const Sequence& sequence, const Sinks& sinks, Path path);

/// d_out [N, H K] -> gradient of the fused, rotated qkv; adds that of the sinks.
at::Tensor attend_pass_backward(const at::Tensor& d_out, const at::Tensor& qkv,
                                const AttentionShape& shape, const Sequence& sequence,
                                const AttendedPass& attended, const Sinks& sinks, Path path);

/// Attention of new tokens to those in the cache and to themselves; appends to the cache. [N, H K].
at::Tensor attend_cached(const at::Tensor& qkv, const AttentionShape& shape,
                         const Sequence& sequence, std::int64_t i_layer, const Sinks& sinks,
                         Path path);

/// Adds (or writes, where not `accumulate`) the rows of d_x to the rows `ids` of the gradient [V,
/// D].
void embedding_gradient(const at::Tensor& ids_N, const at::Tensor& d_x_ND,
                        const at::Tensor& gradient_VD, bool accumulate, Path path);

/// Writes log p(label) of logits [N, V] to `scores`; both are where the logits are. With
/// d_log_prob_N (fp32), the logits are overwritten with the gradient of the sum of
/// d_log_prob_N * scores.log_prob_N.
void score_labels(at::Tensor& logits_NV, const at::Tensor& labels_N, const at::Tensor& d_log_prob_N,
                  LabelScores& scores, Path path);

}  // namespace finetune::model
