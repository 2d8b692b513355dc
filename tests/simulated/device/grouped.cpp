// SPDX-License-Identifier: Apache-2.0
// The grouped product of GPUs on the simulated device: what libtorch's CUTLASS kernel for bf16
// promises and insists on. Source: _grouped_mm_cuda of libtorch 2.11.
#include <torch/library.h>

#include <cstdint>
#include <limits>
#include <optional>

#include "simulated/device/kernel.hpp"

namespace finetune::simulated {
namespace {

constexpr std::int64_t load_bytes = 16;

bool is_multiple(std::int64_t elements, const at::Tensor& of) {
  return elements * of.element_size() % load_bytes == 0;
}

bool is_row_major(const at::Tensor& x) {
  return x.stride(-1) == 1;
}

void check_operand(const at::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kBFloat16, "simulated: grouped products of bf16 alone");
  const std::int64_t inner = is_row_major(x) ? x.dim() - 1 : x.dim() - 2;
  const std::int64_t outer = 2 * x.dim() - 3 - inner;
  TORCH_CHECK(x.stride(inner) == 1 && x.stride(outer) >= x.size(inner), "invalid strides ",
              x.strides(), " of sizes ", x.sizes());
  TORCH_CHECK(reinterpret_cast<std::uintptr_t>(x.data_ptr()) % load_bytes == 0 &&
                  is_multiple(x.stride(outer), x) && (x.dim() == 2 || is_multiple(x.stride(0), x)),
              "what is loaded does not begin at multiples of 16 bytes: strides ", x.strides());
}

/// Not a number wherever nothing is written.
at::Tensor unwritten(at::IntArrayRef sizes) {
  return at::full(sizes, std::numeric_limits<float>::quiet_NaN(), at::kBFloat16);
}

/// Rows of each expert times its matrix: [M, K], [E, K, N] -> [M, N].
at::Tensor of_rows(const at::Tensor& rows, const at::Tensor& matrices, const std::int32_t* ends) {
  at::Tensor out = unwritten({rows.size(0), matrices.size(2)});
  for (std::int64_t i = 0, begin = 0; i < matrices.size(0); begin = ends[i++]) {
    TORCH_CHECK(begin <= ends[i] && ends[i] <= rows.size(0), "ends of experts come in order");
    const auto own = [&](const at::Tensor& x) { return x.narrow(0, begin, ends[i] - begin); };
    own(out).copy_(at::mm(own(rows).to(at::kFloat), matrices[i].to(at::kFloat)));
  }
  return out;
}

/// [K, M], [M, N] -> [E, K, N]: over the columns, and rows, of each expert.
at::Tensor over_rows(const at::Tensor& a, const at::Tensor& b, const std::int32_t* ends,
                     std::int64_t num) {
  TORCH_CHECK(!is_row_major(a) && is_row_major(b),
              "of other layouts the kernel does not take experts without rows");
  at::Tensor out = unwritten({num, a.size(0), b.size(1)});
  for (std::int64_t i = 0, begin = 0; i < num; begin = ends[i++]) {
    TORCH_CHECK(begin <= ends[i] && ends[i] <= b.size(0), "ends of experts come in order");
    const std::int64_t count = ends[i] - begin;
    out[i].copy_(
        at::mm(a.narrow(1, begin, count).to(at::kFloat), b.narrow(0, begin, count).to(at::kFloat)));
  }
  return out;
}

at::Tensor grouped_mm(const at::Tensor& a, const at::Tensor& b,
                      const std::optional<at::Tensor>& ends, const std::optional<at::Tensor>& bias,
                      std::optional<at::ScalarType> dtype) {
  const Operation operation = launched("aten::_grouped_mm");
  TORCH_CHECK(capability() / 10 == 9 || capability() / 10 == 10,
              "simulated: only GPUs of Hopper and Blackwell have the kernel");
  TORCH_CHECK(a.dim() == 2 && ends && !bias && !dtype,
              "simulated: rows of experts, and nothing else");
  check_operand(a);
  check_operand(b);
  TORCH_CHECK(ends->scalar_type() == at::kInt && ends->dim() == 1 && ends->numel() < 1024,
              "ends are int32, of 1023 experts at most");
  const at::Tensor on_host = of_device(*ends).contiguous();
  const auto* end = on_host.const_data_ptr<std::int32_t>();
  const at::Tensor out = b.dim() == 3 ? of_rows(of_device(a), of_device(b), end)
                                      : over_rows(of_device(a), of_device(b), end, ends->numel());
  return to_device(out, a.device());
}

}  // namespace
}  // namespace finetune::simulated

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_grouped_mm", finetune::simulated::grouped_mm);
}
