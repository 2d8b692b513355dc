// SPDX-License-Identifier: Apache-2.0
// The product of 8-bit operands of GPUs on the simulated device: from its definition, with what
// libtorch and cuBLAS insist on. Source: _scaled_mm_cuda of libtorch 2.11; the chapter on scaled
// products of cuBLAS 12.9.
#include <torch/library.h>

#include <cstdint>
#include <limits>
#include <optional>

#include "simulated/device/kernel.hpp"

namespace finetune::simulated {
namespace {

constexpr std::int64_t multiple = 16, block = 128, scales_together = 4;

bool is_e4m3(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat8_e4m3fn;
}

void check_operand(const at::Tensor& x) {
  TORCH_CHECK(x.dim() == 2 && (is_e4m3(x) || x.scalar_type() == at::kFloat8_e5m2),
              "simulated: operands are matrices of 8 bits");
  TORCH_CHECK(x.stride(1) == 1 && x.stride(0) == x.size(1),
              "simulated: rows of a, and columns of b, lie one after the other");
  TORCH_CHECK(reinterpret_cast<std::uintptr_t>(x.data_ptr()) % multiple == 0,
              "simulated: operands begin at multiples of 16 bytes");
}

bool has_strides(const at::Tensor& x, std::int64_t first, std::int64_t second) {
  return (x.size(0) <= 1 || x.stride(0) == first) && (x.size(1) <= 1 || x.stride(1) == second);
}

bool is_rowwise(const at::Tensor& x, const at::Tensor& scales) {
  return scales.size(0) == x.size(0) && scales.size(1) == 1 && scales.is_contiguous();
}

/// [R, K / 128], one column after the other.
bool is_of_pieces(const at::Tensor& x, const at::Tensor& scales) {
  return x.size(1) % block == 0 && scales.size(0) == x.size(0) &&
         scales.size(1) == x.size(1) / block && has_strides(scales, 1, x.size(0));
}

/// [R / 128, K / 128], one row after the other, which begin at multiples of 16 bytes.
bool is_of_blocks(const at::Tensor& x, const at::Tensor& scales) {
  const std::int64_t columns = x.size(1) / block;
  return x.size(0) % block == 0 && x.size(1) % block == 0 && scales.size(0) == x.size(0) / block &&
         scales.size(1) == columns && has_strides(scales, columns, 1) &&
         columns % scales_together == 0;
}

at::Tensor widened(const at::Tensor& x, const at::Tensor& scales) {
  const at::Tensor each = scales.repeat_interleave(x.size(0) / scales.size(0), 0)
                              .repeat_interleave(x.size(1) / scales.size(1), 1);
  return x.to(at::kFloat) * each;
}

/// a [M, K], b [K, N], of which the columns lie one after the other.
at::Tensor scaled_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& scales_a,
                     const at::Tensor& scales_b, const std::optional<at::Tensor>& bias,
                     const std::optional<at::Tensor>& scale_of_result,
                     std::optional<at::ScalarType> dtype, bool use_fast_accum) {
  const Operation operation = launched("aten::_scaled_mm");
  TORCH_CHECK(capability() >= 89, "simulated: only GPUs from 8.9 on have products of 8 bits");
  TORCH_CHECK(!bias && !scale_of_result && dtype == at::kBFloat16, "simulated: to bf16 alone");
  const at::Tensor bt = b.t(), scales_bt = scales_b.t();
  check_operand(a);
  check_operand(bt);
  TORCH_CHECK(is_e4m3(bt), "simulated: the kernel for rows has e4m3 in b");
  TORCH_CHECK(a.size(1) == bt.size(1) && a.size(1) % multiple == 0 && bt.size(0) % multiple == 0,
              "sizes of operands are multiples of 16");
  TORCH_CHECK(scales_a.scalar_type() == at::kFloat && scales_b.scalar_type() == at::kFloat &&
                  scales_a.dim() == 2 && scales_b.dim() == 2,
              "scales are matrices of fp32");
  if (is_rowwise(a, scales_a) && is_rowwise(bt, scales_bt) && scales_b.is_contiguous()) {
    TORCH_CHECK(use_fast_accum, "simulated: of rows the slow kernel is not meant");
  } else {
    TORCH_CHECK(is_of_pieces(a, scales_a) && is_of_blocks(bt, scales_bt), "invalid scales: sizes ",
                scales_a.sizes(), " and ", scales_b.sizes(), ", strides ", scales_a.strides(),
                " and ", scales_b.strides());
    TORCH_CHECK(capability() / 10 == 9, "simulated: only Hopper takes scales of blocks");
  }
  if (a.size(0) == 0) return at::empty({0, bt.size(0)}, a.options().dtype(at::kBFloat16));
  const at::Tensor out = at::mm(widened(of_device(a), of_device(scales_a)),
                                widened(of_device(bt), of_device(scales_bt)).t());
  return to_device(out.to(at::kBFloat16), a.device());
}

at::Tensor& scaled_mm_out(const at::Tensor& a, const at::Tensor& b, const at::Tensor& scales_a,
                          const at::Tensor& scales_b, const std::optional<at::Tensor>& bias,
                          const std::optional<at::Tensor>& scale_of_result,
                          std::optional<at::ScalarType> dtype, bool use_fast_accum,
                          at::Tensor& out) {
  const at::Tensor product =
      scaled_mm(a, b, scales_a, scales_b, bias, scale_of_result, dtype, use_fast_accum);
  TORCH_CHECK(out.sizes() == product.sizes() && out.scalar_type() == product.scalar_type() &&
                  out.is_contiguous(),
              "simulated: the product goes to memory that fits it");
  of_device(out).copy_(of_device(product));
  return out;
}

/// Rows of each expert times its matrix, all of e4m3 with a scale per row: [M, K], and [E, K, N]
/// of which the columns lie one after the other -> [M, N]. What is not written is not a number.
/// Source: _scaled_grouped_mm_cuda of libtorch 2.11.
at::Tensor scaled_grouped_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& scales_a,
                             const at::Tensor& scales_b, const std::optional<at::Tensor>& ends,
                             const std::optional<at::Tensor>& bias,
                             const std::optional<at::Tensor>& scale_of_result,
                             std::optional<at::ScalarType> dtype, bool use_fast_accum) {
  const Operation operation = launched("aten::_scaled_grouped_mm");
  TORCH_CHECK(capability() / 10 == 9, "simulated: only Hopper's kernel takes scales of rows");
  TORCH_CHECK(!bias && !scale_of_result && dtype == at::kBFloat16 && use_fast_accum && ends,
              "simulated: rows of experts to bf16, and nothing else");
  const at::Tensor bt = b.transpose(1, 2);
  check_operand(a);
  TORCH_CHECK(is_e4m3(a) && is_e4m3(bt) && bt.stride(2) == 1 && bt.stride(1) >= bt.size(2),
              "operands are of e4m3, and columns of b lie one after the other");
  TORCH_CHECK(reinterpret_cast<std::uintptr_t>(bt.data_ptr()) % multiple == 0 &&
                  bt.stride(0) % multiple == 0 && bt.stride(1) % multiple == 0,
              "what is loaded does not begin at multiples of 16 bytes: strides ", bt.strides());
  TORCH_CHECK(a.size(1) == bt.size(2) && a.size(1) % multiple == 0 && bt.size(1) % multiple == 0,
              "sizes of operands are multiples of 16");
  TORCH_CHECK(scales_a.dim() == 1 && scales_a.is_contiguous() && scales_a.size(0) == a.size(0) &&
                  scales_b.dim() == 2 && scales_b.stride(1) == 1 &&
                  scales_b.size(0) == bt.size(0) && scales_b.size(1) == bt.size(1),
              "invalid scales: sizes ", scales_a.sizes(), " and ", scales_b.sizes());
  TORCH_CHECK(ends->scalar_type() == at::kInt && ends->dim() == 1 && ends->numel() == bt.size(0) &&
                  ends->numel() < 1024,
              "ends are int32, of 1023 experts at most");
  const at::Tensor on_host = of_device(*ends).contiguous();
  const auto* end = on_host.const_data_ptr<std::int32_t>();
  const at::Tensor rows = widened(of_device(a), of_device(scales_a).unsqueeze(1));
  at::Tensor out =
      at::full({a.size(0), bt.size(1)}, std::numeric_limits<float>::quiet_NaN(), at::kBFloat16);
  for (std::int64_t i = 0, begin = 0; i < bt.size(0); begin = end[i++]) {
    TORCH_CHECK(begin <= end[i] && end[i] <= a.size(0), "ends of experts come in order");
    const at::Tensor matrix = widened(of_device(bt)[i], of_device(scales_b)[i].unsqueeze(1));
    out.narrow(0, begin, end[i] - begin)
        .copy_(at::mm(rows.narrow(0, begin, end[i] - begin), matrix.t()));
  }
  return to_device(out, a.device());
}

}  // namespace
}  // namespace finetune::simulated

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_mm", finetune::simulated::scaled_mm);
  m.impl("_scaled_mm.out", finetune::simulated::scaled_mm_out);
  m.impl("_scaled_grouped_mm", finetune::simulated::scaled_grouped_mm);
}
