// SPDX-License-Identifier: Apache-2.0
#include "model/detail/grouped_products.hpp"

#include <cstdint>

#include "model/device.hpp"

namespace finetune::model {
namespace {

constexpr std::int64_t load_bytes = 16;
constexpr std::int64_t most_experts = 1023;

bool is_multiple(std::int64_t elements, const at::Tensor& of) {
  return elements * of.element_size() % load_bytes == 0;
}

/// One of the last two dims has its elements next to each other, and those of the other dims begin
/// where the kernel can load.
bool is_aligned(const at::Tensor& x) {
  const std::int64_t inner = x.stride(-1) == 1 ? x.dim() - 1 : x.dim() - 2;
  if (x.stride(inner) != 1 || reinterpret_cast<std::uintptr_t>(x.data_ptr()) % load_bytes != 0)
    return false;
  for (std::int64_t dim = 0; dim < x.dim(); ++dim)
    if (dim != inner && !is_multiple(x.stride(dim), x)) return false;
  return true;
}

bool is_possible(std::int64_t num_rows, std::int64_t num_experts) {
  return num_rows > 0 && num_experts > 0 && num_experts <= most_experts;
}

}  // namespace

bool has_grouped_products(at::Device device, at::ScalarType dtype) {
  if (dtype != at::kBFloat16 || device.is_cpu()) return false;
  const int generation = compute_capability(device) / 10;
  return generation == 9 || generation == 10;
}

bool takes_grouped(const at::Tensor& rows, const at::Tensor& matrices) {
  return is_possible(rows.size(0), matrices.size(0)) && is_aligned(rows) && is_aligned(matrices) &&
         is_multiple(matrices.size(1), matrices) && is_multiple(matrices.size(2), matrices);
}

bool takes_grouped_outer(const at::Tensor& a, const at::Tensor& b, std::int64_t num) {
  return is_possible(a.size(0), num) && is_aligned(a) && is_aligned(b) &&
         is_multiple(a.size(1), a) && is_multiple(b.size(1), b);
}

at::Tensor grouped_product(const at::Tensor& rows, const at::Tensor& matrices,
                           const at::Tensor& ends) {
  return at::_grouped_mm(rows, matrices, ends);
}

at::Tensor grouped_outer_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
  // The layouts, transposed and not, are the ones of which the kernel takes experts without rows.
  return at::_grouped_mm(a.t(), b, ends);
}

}  // namespace finetune::model
