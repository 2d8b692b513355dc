// SPDX-License-Identifier: Apache-2.0
#include "model/detail/expert_copies.hpp"

#include "kernels/expert_copies.hpp"
#include "model/detail/elements.hpp"

namespace finetune::model {
namespace {

/// The kernels are the host's.
bool computes_here(const at::Tensor& rows, Path path) {
  return rows.is_cpu() && rows.size(1) > 0 && has_kernels(rows, path);
}

template <typename T>
std::span<T> span_if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? span_of<T>(tensor) : std::span<T>();
}

at::Tensor factors(const at::Tensor& weights_M, const at::Tensor& rows) {
  return weights_M.unsqueeze(1).to(rows.scalar_type());
}

}  // namespace

at::Tensor copies_of(const at::Tensor& x_ND, const at::Tensor& tokens_M,
                     const at::Tensor& weights_M, Path path) {
  if (!computes_here(x_ND, path)) {
    const at::Tensor rows = tokens_M.defined() ? x_ND.index_select(0, tokens_M) : x_ND;
    return weights_M.defined() ? rows * factors(weights_M, rows) : rows;
  }
  const at::Tensor x = x_ND.contiguous();
  const std::int64_t count = tokens_M.defined() ? tokens_M.numel() : x.size(0);
  at::Tensor out = at::empty({count, x.size(1)}, x.options());
  if (count == 0) return out;
  dispatch(x, [&]<typename T>() {
    kernels::copy_rows(span_of<const T>(x), x.size(1),
                       span_if_defined<const std::int64_t>(tokens_M),
                       span_if_defined<const float>(weights_M), span_of<T>(out));
  });
  return out;
}

at::Tensor add_copies(at::Tensor copies, const at::Tensor& places_Nk, const at::Tensor& weights_Nk,
                      Path path) {
  const std::int64_t tokens = places_Nk.size(0), top_k = places_Nk.size(1), dim = copies.size(1);
  if (!computes_here(copies, path)) {
    const at::Tensor sorted = copies.index_select(0, places_Nk.flatten());
    copies.reset();
    if (weights_Nk.defined()) sorted.mul_(factors(weights_Nk.flatten(), sorted));
    return top_k == 1 ? sorted : sorted.view({tokens, top_k, dim}).sum(1);
  }
  copies = copies.contiguous();
  at::Tensor y = at::empty({tokens, dim}, copies.options());
  dispatch(copies, [&]<typename T>() {
    kernels::add_copies(span_of<const T>(copies), dim, span_of<const std::int64_t>(places_Nk),
                        span_if_defined<const float>(weights_Nk), span_of<T>(y));
  });
  return y;
}

at::Tensor dot_and_scale_rows(at::Tensor& a_MF, const at::Tensor& b_MF, const at::Tensor& weights_M,
                              Path path) {
  if (!computes_here(a_MF, path) || !a_MF.is_contiguous() || !b_MF.is_contiguous()) {
    at::Tensor dots = (a_MF * b_MF).sum(1, /*keepdim=*/false, at::kFloat);
    a_MF.mul_(factors(weights_M, a_MF));
    return dots;
  }
  at::Tensor dots = at::empty({a_MF.size(0)}, a_MF.options().dtype(at::kFloat));
  dispatch(a_MF, [&]<typename T>() {
    kernels::dot_and_scale_rows(span_of<T>(a_MF), span_of<const T>(b_MF),
                                span_of<const float>(weights_M), span_of<float>(dots));
  });
  return dots;
}

}  // namespace finetune::model
