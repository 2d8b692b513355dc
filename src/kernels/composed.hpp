#pragma once
// SPDX-License-Identifier: Apache-2.0
// The same functions as the kernels, put together from ATen operations: the oracle of the tests,
// and what runs on a GPU when Kokkos has no device backend.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "kernels/rope.hpp"
#include "kernels/rounding.hpp"

namespace finetune::kernels::composed {

// Shapes and dtypes as in the headers of the kernels; activations are float, bf16 or float16
// tensors on any device, and the arithmetic is fp32.

/// x [N, D], weight [D] -> y [N, D], rstd [N] fp32. Here and below `weight_offset` is added to the
/// weight.
std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const at::Tensor& weight,
                                            double epsilon, double weight_offset = 0);

/// -> dx [N, D] (without a residual's gradient), dweight [D] fp32.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& dy, const at::Tensor& h,
                                                     const at::Tensor& weight,
                                                     const at::Tensor& rstd,
                                                     double weight_offset = 0);

/// x [N, D], weight and bias [D] (undefined: none) -> y [N, D]; means and 1 / deviation [2, N]
/// fp32. Source: Ba et al. 2016 (arXiv 1607.06450).
std::tuple<at::Tensor, at::Tensor> layer_norm(const at::Tensor& x, const at::Tensor& weight,
                                              const at::Tensor& bias, double epsilon,
                                              double weight_offset = 0);

/// Gradients that somebody takes beside that of x.
struct NormGradients {
  bool weight = true, bias = true;
};
struct LayerNormGradients {
  at::Tensor x;             ///< [N, D]
  at::Tensor weight, bias;  ///< [D] fp32; undefined if not wanted
};
LayerNormGradients layer_norm_backward(const at::Tensor& dy, const at::Tensor& h,
                                       const at::Tensor& weight, const at::Tensor& statistics,
                                       double weight_offset, NormGradients wanted);

struct RopeHeads {
  std::int64_t query_heads, key_heads, head_size;
  Pairs pairs = Pairs::halves;
};

/// qkv [N, (query_heads + 2 key_heads) * K], in place; cos, sin [L, R/2] fp32, for the first R of
/// K channels; positions [N] int64.
void rope_(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
           const at::Tensor& positions, const RopeHeads& heads, Rotation rotation);

/// gate_up [N, 2F] -> [N, F].
at::Tensor swiglu(const at::Tensor& gate_up);

/// dy [N, F], gate_up [N, 2F] -> d_gate_up [N, 2F].
at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up);

struct Attention {
  at::Tensor out;        ///< [B, H, L, K] as q
  at::Tensor logsumexp;  ///< [B, H, L] fp32
};

/// Which keys the queries see: all, or those up to their own number, or those a mask [L, M] fp32
/// does not add -infinity to.
struct Visible {
  bool is_causal = false;
  at::Tensor mask = {};
  std::int64_t window = 0;  ///< what the mask says, if it is that of a window; 0: it is another
  double softcap = 0;       ///< c of scores c tanh(x / c); 0: none
};

/// Softmax of q k^T / sqrt(K) times v. It holds all scores at once. q [B, H, L, K]; k and v [B,
/// Hkv, M, K], each shared by H / Hkv neighbouring query heads.
Attention attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const Visible& visible);

struct AttentionGradients {
  at::Tensor q, k, v;  ///< shaped like q, k and v
};
AttentionGradients attention_backward(const at::Tensor& d_out, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v,
                                      const Attention& attention, const Visible& visible);

struct CrossEntropy {
  at::Tensor losses;    ///< [N] fp32
  at::Tensor correct;   ///< [N] bool
  at::Tensor gradient;  ///< [N, V] fp32, of the sum of scales * losses; or undefined
};

/// logits [N, V], targets [N] int64, scales [N] fp32.
CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& targets);
CrossEntropy cross_entropy_with_gradient(const at::Tensor& logits, const at::Tensor& targets,
                                         const at::Tensor& scales);

/// weight [V, D], ids [N] -> [N, D].
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids);

/// dweight [V, D] += dy [N, D] at rows ids [N]; deterministic on every device.
void embedding_backward_(at::Tensor& dweight, const at::Tensor& dy, const at::Tensor& ids);

struct AdamWNumbers {
  double lr, beta1, beta2, epsilon, weight_decay;
  std::int64_t step;
  double gradient_scale = 1.0;
  std::optional<RoundingKey> rounding = {};  ///< of what is bf16; without: to nearest
  std::int64_t index = 0;                    ///< of the first element, over the whole model
};

/// All [N]; weight and moments change in place. Computed in fp32; what is bf16 is rounded at the
/// end of the step.
void adamw_(at::Tensor& weight, at::Tensor& exp_avg, at::Tensor& exp_avg_sq,
            const at::Tensor& gradient, const AdamWNumbers& numbers);

/// values [N] -> fp64 scalar tensor. On a device rows of fp32 values are added up in fp32.
at::Tensor squared_sum(const at::Tensor& values);

/// Adds the squares of `values` (fp32) to `bins`, int64 [SquareBins::num_values]: the numbers that
/// exact_squared_sum ends in, whatever the device and the order of its sums.
void add_exact_squares_(at::Tensor& bins, const at::Tensor& values);

}  // namespace finetune::kernels::composed
