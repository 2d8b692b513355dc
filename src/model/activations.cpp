// SPDX-License-Identifier: Apache-2.0
#include "model/activations.hpp"

#include <span>

#include "kernels/composed.hpp"
#include "kernels/composed_packed.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/place.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"

namespace finetune::model {
namespace {

/// The kernels' element type of a tensor's; bfloat16 travels as its bits.
template <typename T>
std::span<T> span_of(const at::Tensor& tensor) {
  return {static_cast<T*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

/// Calls f.operator()<T>() with the kernels' element type of `tensor`.
template <typename F>
auto dispatch(const at::Tensor& tensor, const F& f) {
  return tensor.scalar_type() == at::kFloat ? f.template operator()<float>()
                                            : f.template operator()<kernels::bf16>();
}

/// Kernels are for float and bfloat16, on the CPU and where they compute on GPUs. Everything else
/// goes through the compositions.
bool has_kernels(const at::Tensor& tensor, Path path) {
  return path != Path::composed && kernels::compute_on(tensor.device()) &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

kernels::Place place_of(const at::Tensor& tensor) {
  return kernels::place_on(tensor.device());
}

at::Tensor empty_rows(const at::Tensor& like) {
  return at::empty({like.size(0)}, like.options().dtype(at::kFloat));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const at::Tensor& x_ND,
                                                    const at::Tensor& weight_D, double eps,
                                                    Path path) {
  if (!has_kernels(x_ND, path)) return kernels::composed::rms_norm(x_ND, weight_D, eps);
  at::Tensor y = at::empty_like(x_ND);
  at::Tensor rstd = empty_rows(x_ND);
  dispatch(x_ND, [&]<typename T>() {
    kernels::rms_norm(kernels::RmsNormForward<T>{.x = span_of<const T>(x_ND),
                                                 .residual = {},
                                                 .weight = span_of<const T>(weight_D),
                                                 .epsilon = static_cast<float>(eps),
                                                 .h = {},
                                                 .y = span_of<T>(y),
                                                 .rstd = span_of<float>(rstd)},
                      place_of(x_ND));
  });
  return {y, rstd};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm_forward(const at::Tensor& x_ND,
                                                                    const at::Tensor& residual_ND,
                                                                    const at::Tensor& weight_D,
                                                                    double eps, Path path) {
  if (!has_kernels(x_ND, path)) {
    at::Tensor h = x_ND + residual_ND;
    auto [y, rstd] = kernels::composed::rms_norm(h, weight_D, eps);
    return {h, y, rstd};
  }
  at::Tensor h = at::empty_like(x_ND);
  at::Tensor y = at::empty_like(x_ND);
  at::Tensor rstd = empty_rows(x_ND);
  dispatch(x_ND, [&]<typename T>() {
    kernels::rms_norm(kernels::RmsNormForward<T>{.x = span_of<const T>(x_ND),
                                                 .residual = span_of<const T>(residual_ND),
                                                 .weight = span_of<const T>(weight_D),
                                                 .epsilon = static_cast<float>(eps),
                                                 .h = span_of<T>(h),
                                                 .y = span_of<T>(y),
                                                 .rstd = span_of<float>(rstd)},
                      place_of(x_ND));
  });
  return {h, y, rstd};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(
    const at::Tensor& dy_ND, const at::Tensor& x_ND, const at::Tensor& weight_D,
    const at::Tensor& rstd_N, const at::Tensor& d_residual_ND, Path path, bool wants_dw) {
  if (!has_kernels(x_ND, path)) {
    auto [dx, dw] = kernels::composed::rms_norm_backward(dy_ND, x_ND, weight_D, rstd_N);
    return {d_residual_ND.defined() ? dx + d_residual_ND : dx, dw};
  }
  const at::Tensor dy = dy_ND.contiguous();
  const at::Tensor d_residual =
      d_residual_ND.defined() ? d_residual_ND.contiguous() : d_residual_ND;
  at::Tensor dx = at::empty_like(x_ND);
  at::Tensor dw;
  if (wants_dw) dw = at::zeros({x_ND.size(1)}, x_ND.options().dtype(at::kFloat));
  dispatch(x_ND, [&]<typename T>() {
    kernels::rms_norm_backward(
        kernels::RmsNormBackward<T>{
            .dy = span_of<const T>(dy),
            .h = span_of<const T>(x_ND),
            .weight = span_of<const T>(weight_D),
            .rstd = span_of<const float>(rstd_N),
            .dresidual = d_residual.defined() ? span_of<const T>(d_residual) : std::span<const T>(),
            .dx = span_of<T>(dx),
            .dweight = wants_dw ? span_of<float>(dw) : std::span<float>()},
        place_of(x_ND));
  });
  return {dx, dw};
}

at::Tensor dropout(const at::Tensor& x_ND, const DropoutMask& dropout, int stream, Path path,
                   std::int64_t first_channel) {
  const kernels::DropoutKey key{dropout.seed, static_cast<std::uint32_t>(stream), first_channel};
  if (!has_kernels(x_ND, path))
    return kernels::composed::dropout(x_ND, dropout.tokens_N, key, dropout.p);
  const at::Tensor x = x_ND.contiguous();
  at::Tensor y = at::empty_like(x);
  dispatch(x, [&]<typename T>() {
    kernels::dropout(kernels::Dropout<T>{.x = span_of<const T>(x),
                                         .tokens = span_of<const std::int64_t>(dropout.tokens_N),
                                         .key = key,
                                         .p = dropout.p,
                                         .out = span_of<T>(y)},
                     place_of(x));
  });
  return y;
}

at::Tensor swiglu_forward(const at::Tensor& gate_up, Path path) {
  if (!has_kernels(gate_up, path)) return kernels::composed::swiglu(gate_up);
  const std::int64_t features = gate_up.size(1) / 2;
  at::Tensor y = at::empty({gate_up.size(0), features}, gate_up.options());
  dispatch(gate_up, [&]<typename T>() {
    kernels::swiglu(span_of<const T>(gate_up), features, span_of<T>(y), place_of(gate_up));
  });
  return y;
}

at::Tensor swiglu_backward(const at::Tensor& dy_NF, const at::Tensor& gate_up, Path path) {
  if (!has_kernels(gate_up, path)) return kernels::composed::swiglu_backward(dy_NF, gate_up);
  const at::Tensor dy = dy_NF.contiguous();
  at::Tensor d_gate_up = at::empty_like(gate_up);
  dispatch(gate_up, [&]<typename T>() {
    kernels::swiglu_backward(span_of<const T>(dy), span_of<const T>(gate_up), gate_up.size(1) / 2,
                             span_of<T>(d_gate_up), place_of(gate_up));
  });
  return d_gate_up;
}

void rotate(at::Tensor& qkv, const AttentionShape& shape, const Sequence& sequence,
            RotateBy direction, Path path) {
  const auto rotation =
      direction == RotateBy::angle ? kernels::Rotation::forward : kernels::Rotation::backward;
  const auto pairs =
      shape.rotary == Rotary::pairs ? kernels::Pairs::neighbours : kernels::Pairs::halves;
  const RotaryTables& tables = shape.window > 0 && sequence.window_tables.cos.defined()
                                   ? sequence.window_tables
                                   : sequence.tables;
  if (!has_kernels(qkv, path)) {
    kernels::composed::rope_(qkv, tables.cos, tables.sin, sequence.positions,
                             {shape.num_heads, shape.num_kv_heads, shape.head_size, pairs},
                             rotation);
    return;
  }
  dispatch(qkv, [&]<typename T>() {
    kernels::rope(kernels::Rope<T>{.qkv = span_of<T>(qkv),
                                   .cos = span_of<const float>(tables.cos),
                                   .sin = span_of<const float>(tables.sin),
                                   .positions = span_of<const std::int64_t>(sequence.positions),
                                   .query_heads = shape.num_heads,
                                   .key_heads = shape.num_kv_heads,
                                   .head_size = shape.head_size,
                                   .rotary_size = 2 * tables.cos.size(1),
                                   .rotation = rotation,
                                   .pairs = pairs},
                  place_of(qkv));
  });
}

namespace {

/// On a GPU, where the ids are sorted, too.
void add_embedding_rows(const at::Tensor& ids_N, const at::Tensor& d_x_ND,
                        const at::Tensor& gradient_VD) {
  const auto [sorted, order] = at::sort(ids_N, /*stable=*/true, 0, /*descending=*/false);
  const auto ids = span_of<const std::int64_t>(sorted), places = span_of<const std::int64_t>(order);
  dispatch(gradient_VD, [&]<typename T>() {
    kernels::embedding_backward_sorted<T, T>(span_of<const T>(d_x_ND), ids, places, d_x_ND.size(1),
                                             span_of<T>(gradient_VD), place_of(gradient_VD));
  });
}

}  // namespace

void embedding_gradient(const at::Tensor& ids_N, const at::Tensor& d_x_ND,
                        const at::Tensor& gradient_VD, bool accumulate, Path path) {
  at::Tensor gradient = gradient_VD;
  if (!accumulate) gradient.zero_();
  if (!has_kernels(gradient, path))
    return kernels::composed::embedding_backward_(gradient, d_x_ND, ids_N);
  const at::Tensor d_x = d_x_ND.contiguous();
  if (!gradient.is_cpu()) return add_embedding_rows(ids_N, d_x, gradient);
  dispatch(gradient, [&]<typename T>() {
    kernels::embedding_backward<T, T>(span_of<const T>(d_x), span_of<const std::int64_t>(ids_N),
                                      d_x.size(1), span_of<T>(gradient));
  });
}

void score_labels(at::Tensor& logits_NV, const at::Tensor& labels_N, const at::Tensor& d_log_prob_N,
                  LabelScores& scores, Path path) {
  // Of losses, which are -log p.
  const at::Tensor scales = d_log_prob_N.defined() ? d_log_prob_N.neg() : at::Tensor();
  if (!has_kernels(logits_NV, path)) {
    const auto result = scales.defined() ? kernels::composed::cross_entropy_with_gradient(
                                               logits_NV, labels_N, scales)
                                         : kernels::composed::cross_entropy(logits_NV, labels_N);
    scores.is_first_N.copy_(result.correct.logical_or(labels_N.eq(kernels::ignored_target)));
    scores.log_prob_N.copy_(result.losses.neg());
    if (scales.defined()) logits_NV.copy_(result.gradient);
    return;
  }
  dispatch(logits_NV, [&]<typename T>() {
    const auto targets = span_of<const std::int64_t>(labels_N);
    const auto losses = span_of<float>(scores.log_prob_N);
    const auto hits = span_of<bool>(scores.is_first_N);
    const kernels::Place place = place_of(logits_NV);
    if (scales.defined())
      kernels::cross_entropy_with_gradient<T>(span_of<T>(logits_NV), targets,
                                              span_of<const float>(scales), losses, hits, place);
    else
      kernels::cross_entropy<T>(span_of<const T>(logits_NV), targets, losses, hits, place);
  });
  scores.log_prob_N.neg_();
}

}  // namespace finetune::model
