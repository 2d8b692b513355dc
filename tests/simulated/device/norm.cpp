// SPDX-License-Identifier: Apache-2.0
// The norm of GPUs on the simulated device: one launch forward, one backward, as libtorch's kernels
// have it. Source: _fused_rms_norm_cuda of libtorch 2.11.
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>

#include "simulated/device/kernel.hpp"

namespace finetune::simulated {
namespace {

void check(const at::Tensor& x, at::IntArrayRef shape, const std::optional<at::Tensor>& weight) {
  TORCH_CHECK(shape.size() == 1 && x.size(-1) == shape[0],
              "simulated: norms of the last dim alone");
  TORCH_CHECK(weight && weight->scalar_type() == x.scalar_type(),
              "simulated: a weight of the input's dtype, which both are read as");
}

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, at::IntArrayRef shape,
                                            const std::optional<at::Tensor>& weight,
                                            std::optional<double> epsilon) {
  const Operation operation = launched("aten::_fused_rms_norm");
  check(x, shape, weight);
  TORCH_CHECK(epsilon.has_value(), "simulated: epsilon is given");
  const at::Tensor x_f = of_device(x).to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(x_f.pow(2).mean(-1, /*keepdim=*/true) + *epsilon);
  const at::Tensor y = of_device(*weight).to(at::kFloat) * (x_f * rstd);
  return {to_device(y.to(x.scalar_type()), x.device()), to_device(rstd, x.device())};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                                     at::IntArrayRef shape, const at::Tensor& rstd,
                                                     const std::optional<at::Tensor>& weight,
                                                     std::array<bool, 2> wanted) {
  const Operation operation = launched("aten::_fused_rms_norm_backward");
  check(x, shape, weight);
  TORCH_CHECK(rstd.dim() == x.dim() && rstd.size(-1) == 1 && rstd.scalar_type() == at::kFloat,
              "simulated: one rstd per row, as forward returns it");
  const at::Tensor dy_f = of_device(dy).to(at::kFloat), scale = of_device(rstd);
  const at::Tensor normal = of_device(x).to(at::kFloat) * scale;
  const at::Tensor d_normal = dy_f * of_device(*weight).to(at::kFloat);
  const at::Tensor mean = (d_normal * normal).mean(-1, /*keepdim=*/true);
  at::Tensor dx, dw;
  if (wanted[0])
    dx = to_device(((d_normal - normal * mean) * scale).to(x.scalar_type()), x.device());
  if (wanted[1])
    dw = to_device((dy_f * normal).flatten(0, -2).sum(0).to(weight->scalar_type()), x.device());
  return {dx, dw};
}

}  // namespace
}  // namespace finetune::simulated

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_rms_norm", finetune::simulated::rms_norm);
  m.impl("_fused_rms_norm_backward", finetune::simulated::rms_norm_backward);
}
