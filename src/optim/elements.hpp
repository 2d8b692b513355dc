#pragma once
// SPDX-License-Identifier: Apache-2.0
// For optimizers: tensors on the host as the kernels take them.

#include <ATen/ATen.h>

#include <cstdint>
#include <span>

#include "core/error.hpp"
#include "kernels/element.hpp"

namespace finetune::optim {

/// Elements that a composition updates at a time where it needs more than their fp32 values: its
/// intermediate tensors take about 60 bytes of each.
inline constexpr std::int64_t composed_elements = std::int64_t{1} << 22;

/// Elements as the kernels know them: bfloat16 and half travel as their bits.
template <typename T>
std::span<T> elements(const at::Tensor& tensor, std::int64_t offset, std::int64_t count) {
  return {static_cast<T*>(tensor.data_ptr()) + offset, static_cast<std::size_t>(count)};
}
template <typename T>
std::span<T> elements(const at::Tensor& tensor) {
  return elements<T>(tensor, 0, tensor.numel());
}

/// Calls f.operator()<T>() with the kernels' element type of what the optimizer keeps.
template <typename F>
void dispatch(at::ScalarType dtype, const F& f) {
  core::check(dtype == at::kFloat || dtype == at::kBFloat16,
              "the optimizer keeps its state in fp32 or bf16");
  if (dtype == at::kFloat) {
    f.template operator()<float>();
  } else {
    f.template operator()<kernels::bf16>();
  }
}

/// Lets a kernel write elements [offset, offset + count) of `copy`, if it is defined.
template <typename Args>
void set_copies(const at::Tensor& copy, std::int64_t offset, std::int64_t count, Args& args) {
  if (!copy.defined()) return;
  if (copy.scalar_type() == at::kBFloat16)
    args.weight_bf16 = elements<kernels::bf16>(copy, offset, count);
  if (copy.scalar_type() == at::kHalf)
    args.weight_f16 = elements<kernels::f16>(copy, offset, count);
}

}  // namespace finetune::optim
