#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tensors as the kernels take them.

#include <ATen/ATen.h>

#include <span>

#include "kernels/element.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/place.hpp"
#include "model/path.hpp"

namespace finetune::model {

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
inline bool has_kernels(const at::Tensor& tensor, Path path) {
  return path != Path::composed && kernels::compute_on(tensor.device()) &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

inline kernels::Place place_of(const at::Tensor& tensor) {
  return kernels::place_on(tensor.device());
}

}  // namespace finetune::model
