// SPDX-License-Identifier: Apache-2.0
#include "model/magnitudes.hpp"

#include <span>

#include "kernels/composed_magnitudes.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/magnitudes.hpp"

namespace finetune::model {
namespace {

/// Kernels are for float and bfloat16, on the CPU and where they compute on GPUs.
bool has_magnitude_kernels(const at::Tensor& tensor, Path path) {
  return path != Path::composed && kernels::compute_on(tensor.device()) &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

template <typename T>
std::span<T> elements_of(const at::Tensor& tensor) {
  return {static_cast<T*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

/// Calls f.operator()<T>() with the kernels' element type of `tensor`.
template <typename F>
void by_element(const at::Tensor& tensor, const F& f) {
  if (tensor.scalar_type() == at::kFloat)
    f.template operator()<float>();
  else
    f.template operator()<kernels::bf16>();
}

}  // namespace

void adapted_row_squares_out(at::Tensor out, const AdaptedRows& rows, Path path) {
  if (!has_magnitude_kernels(rows.w_FD, path) ||
      rows.mixed_FR.scalar_type() != rows.w_FD.scalar_type()) {
    out.copy_(kernels::composed::adapted_row_squares(rows.w_FD, rows.mixed_FR, rows.b_FR,
                                                     rows.low_FR, rows.scale));
    return;
  }
  const at::Tensor w = rows.w_FD.contiguous(), mixed = rows.mixed_FR.contiguous(),
                   b = rows.b_FR.contiguous();
  by_element(w, [&]<typename T>() {
    kernels::adapted_row_squares(
        kernels::AdaptedRows<T>{.weight = elements_of<const T>(w),
                                .mixed = elements_of<const T>(mixed),
                                .b = elements_of<const T>(b),
                                .low = elements_of<const float>(rows.low_FR),
                                .scale = static_cast<float>(rows.scale),
                                .squares = elements_of<float>(out)},
        kernels::place_on(w.device()));
  });
}

void row_factors_out(at::Tensor out, const at::Tensor& norms, const at::Tensor& magnitude,
                     Path path, const at::Tensor& d_factors, at::Tensor d_magnitude) {
  if (!has_magnitude_kernels(magnitude, path)) {
    out.copy_(kernels::composed::row_factors(norms, magnitude));
    if (d_factors.defined())
      d_magnitude.copy_(kernels::composed::magnitude_gradient(norms, d_factors));
    return;
  }
  by_element(magnitude, [&]<typename T>() {
    kernels::RowFactors<T> args{.norms = elements_of<const float>(norms),
                                .magnitude = elements_of<const T>(magnitude),
                                .factors = elements_of<T>(out)};
    if (d_factors.defined()) {
      args.d_factors = elements_of<const float>(d_factors);
      args.d_magnitude = elements_of<float>(d_magnitude);
    }
    kernels::row_factors(args, kernels::place_on(magnitude.device()));
  });
}

}  // namespace finetune::model
