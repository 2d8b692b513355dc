// SPDX-License-Identifier: Apache-2.0
#include "model/detail/norms.hpp"

#include "kernels/composed.hpp"
#include "kernels/rms_norm.hpp"
#include "model/detail/elements.hpp"
#include "model/gradients.hpp"

namespace finetune::model {
namespace {

namespace composed = kernels::composed;

at::Tensor weight_of(const Weights& weights, const Norm& norm, const at::Tensor& like) {
  if (norm.rows.weight < 0) return at::ones({like.size(1)}, like.options());
  return weights.weight({norm.rows.weight, 1});
}

double offset_of(const Norm& norm) {
  return norm.rows.weight < 0 ? 0 : norm.kind.weight_offset;
}

Normed centred_forward(const Weights& weights, const Norm& norm, const at::Tensor& x_ND,
                       const at::Tensor& residual_ND) {
  Normed result;
  result.h = residual_ND.defined() ? x_ND + residual_ND : x_ND;
  const at::Tensor bias = norm.rows.bias >= 0 ? weights.weight({norm.rows.bias, 1}) : at::Tensor();
  std::tie(result.y, result.statistics) = composed::layer_norm(
      result.h, weight_of(weights, norm, x_ND), bias, norm.eps, offset_of(norm));
  return result;
}

}  // namespace

Normed rms_norm_forward(const at::Tensor& x_ND, const at::Tensor& residual_ND,
                        const at::Tensor& weight_D, double eps, Path path, double offset) {
  const bool adds = residual_ND.defined();
  Normed result;
  if (!has_kernels(x_ND, path)) {
    result.h = adds ? x_ND + residual_ND : x_ND;
    std::tie(result.y, result.statistics) = composed::rms_norm(result.h, weight_D, eps, offset);
    return result;
  }
  result.h = adds ? at::empty_like(x_ND) : x_ND;
  result.y = at::empty_like(x_ND);
  result.statistics = at::empty({x_ND.size(0)}, x_ND.options().dtype(at::kFloat));
  dispatch(x_ND, [&]<typename T>() {
    kernels::rms_norm(kernels::RmsNormForward<T>{.x = span_of<const T>(x_ND),
                                                 .residual = adds ? span_of<const T>(residual_ND)
                                                                  : std::span<const T>(),
                                                 .weight = span_of<const T>(weight_D),
                                                 .epsilon = static_cast<float>(eps),
                                                 .h = adds ? span_of<T>(result.h) : std::span<T>(),
                                                 .y = span_of<T>(result.y),
                                                 .rstd = span_of<float>(result.statistics),
                                                 .weight_offset = static_cast<float>(offset)},
                      place_of(x_ND));
  });
  return result;
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const Normed& normed, const at::Tensor& dy_ND,
                                                     const at::Tensor& d_residual_ND,
                                                     const at::Tensor& weight_D, Path path,
                                                     double offset, bool wants_dw) {
  const at::Tensor& h_ND = normed.h;
  if (!has_kernels(h_ND, path)) {
    auto [dx, dw] = composed::rms_norm_backward(dy_ND, h_ND, weight_D, normed.statistics, offset);
    return {d_residual_ND.defined() ? dx + d_residual_ND : dx, dw};
  }
  const at::Tensor dy = dy_ND.contiguous();
  const at::Tensor d_residual =
      d_residual_ND.defined() ? d_residual_ND.contiguous() : d_residual_ND;
  at::Tensor dx = at::empty_like(h_ND);
  at::Tensor dw;
  if (wants_dw) dw = at::zeros({h_ND.size(1)}, h_ND.options().dtype(at::kFloat));
  dispatch(h_ND, [&]<typename T>() {
    kernels::rms_norm_backward(
        kernels::RmsNormBackward<T>{
            .dy = span_of<const T>(dy),
            .h = span_of<const T>(h_ND),
            .weight = span_of<const T>(weight_D),
            .rstd = span_of<const float>(normed.statistics),
            .dresidual = d_residual.defined() ? span_of<const T>(d_residual) : std::span<const T>(),
            .dx = span_of<T>(dx),
            .dweight = wants_dw ? span_of<float>(dw) : std::span<float>(),
            .weight_offset = static_cast<float>(offset)},
        place_of(h_ND));
  });
  return {dx, dw};
}

Normed norm_forward(const Weights& weights, const Norm& norm, const at::Tensor& x_ND,
                    const at::Tensor& residual_ND, Path path) {
  if (norm.kind.is_centred) return centred_forward(weights, norm, x_ND, residual_ND);
  return rms_norm_forward(x_ND, residual_ND, weight_of(weights, norm, x_ND), norm.eps, path,
                          offset_of(norm));
}

at::Tensor norm_backward(Weights& weights, const Norm& norm, const Normed& normed,
                         const at::Tensor& dy_ND, const at::Tensor& d_residual_ND, Path path) {
  const bool has_weight = norm.rows.weight >= 0;
  const GradientSlot slot = has_weight ? weights.gradient({norm.rows.weight, 1}) : GradientSlot();
  const at::Tensor weight_D = weight_of(weights, norm, normed.h);
  if (!norm.kind.is_centred) {
    const auto [dx, dw] = rms_norm_backward(normed, dy_ND, d_residual_ND, weight_D, path,
                                            offset_of(norm), slot.tensor.defined());
    if (slot.tensor.defined()) add_vector(slot, dw);
    return dx;
  }
  const GradientSlot bias =
      norm.rows.bias >= 0 ? weights.gradient({norm.rows.bias, 1}) : GradientSlot();
  const auto d = composed::layer_norm_backward(
      dy_ND, normed.h, weight_D, normed.statistics, offset_of(norm),
      {.weight = slot.tensor.defined(), .bias = bias.tensor.defined()});
  if (slot.tensor.defined()) add_vector(slot, d.weight);
  if (bias.tensor.defined()) add_vector(bias, d.bias);
  return d_residual_ND.defined() ? d.x + d_residual_ND : d.x;
}

}  // namespace finetune::model
