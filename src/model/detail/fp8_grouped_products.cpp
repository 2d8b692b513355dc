// SPDX-License-Identifier: Apache-2.0
#include "model/detail/fp8_grouped_products.hpp"

#include "core/memory_use.hpp"
#include "model/detail/grouped_products.hpp"
#include "model/device.hpp"

namespace finetune::model {
namespace {

/// Rows [M, K], scaled each, times matrices [E, N, K] with scales [E, N].
at::Tensor scaled_grouped_product(const Quantised& rows, const at::Tensor& values_ENK,
                                  const at::Tensor& scales_EN, const at::Tensor& ends) {
  return at::_scaled_grouped_mm(rows.values, values_ENK.transpose(1, 2), rows.scales.view({-1}),
                                scales_EN, ends, {}, {}, at::kBFloat16, /*use_fast_accum=*/true);
}

/// [E, F, D], in fresh memory.
at::Tensor whole_matrices(const Quantised& matrices, at::ScalarType dtype) {
  const core::MemoryScope scope(core::MemoryUse::gathered);
  return dequantised({matrices.values.flatten(0, 1), matrices.scales.flatten(0, 1)}, dtype)
      .view(matrices.values.sizes());
}

/// dy times the scales of the outputs of each row's expert. Shapes: [M, F], [E, F] -> [M, F].
at::Tensor with_scales(const at::Tensor& dy_MF, const at::Tensor& scales_EF,
                       const at::Tensor& ends) {
  const at::Tensor rows = at::arange(dy_MF.size(0), ends.options());
  at::Tensor expert_M = at::searchsorted(ends, rows, /*out_int32=*/true, /*right=*/true);
  // What is behind the last end is nobody's, and nobody reads it.
  expert_M.clamp_max_(ends.numel() - 1);
  return scales_EF.to(dy_MF.scalar_type()).index_select(0, expert_M).mul_(dy_MF);
}

/// [E, F, D] -> [E, D, F], each as the kernel reads it.
at::Tensor each_transposed(const at::Tensor& values) {
  return values.view(at::kByte).transpose(1, 2).contiguous().view(values.scalar_type());
}

}  // namespace

bool has_fp8_grouped_products(at::Device device, Fp8Scaling scaling) {
  return scaling == Fp8Scaling::rowwise && !device.is_cpu() && compute_capability(device) / 10 == 9;
}

at::Tensor fp8_grouped_product(const at::Tensor& x_MD, const Quantised& matrices,
                               const at::Tensor& ends, const Fp8Recipe& recipe) {
  const Quantised x = quantise(x_MD, at::kFloat8_e4m3fn, tile_of_tokens(recipe.scaling));
  if (has_fp8_grouped_products(x_MD.device(), recipe.scaling))
    return scaled_grouped_product(x, matrices.values, matrices.scales.squeeze(2), ends);
  const at::ScalarType dtype = x_MD.scalar_type();
  return grouped_product(dequantised(x, dtype), whole_matrices(matrices, dtype).transpose(1, 2),
                         ends);
}

at::Tensor fp8_grouped_product_backward(const at::Tensor& dy_MF, const Quantised& matrices,
                                        const at::Tensor& ends, const Fp8Recipe& recipe) {
  const at::ScalarType dtype = dy_MF.scalar_type(), format = format_of_gradients(recipe);
  const Tile tile = tile_of_tokens(recipe.scaling);
  if (recipe.scaling == Fp8Scaling::block)
    return grouped_product(dequantised(quantise(dy_MF, format, tile), dtype),
                           whole_matrices(matrices, dtype), ends);
  const Quantised dy = quantise(with_scales(dy_MF, matrices.scales.squeeze(2), ends), format, tile);
  if (format == at::kFloat8_e4m3fn && has_fp8_grouped_products(dy_MF.device(), recipe.scaling)) {
    const at::Tensor values_EDF = each_transposed(matrices.values);
    const at::Tensor ones_ED =
        at::ones({values_EDF.size(0), values_EDF.size(1)}, matrices.scales.options());
    return scaled_grouped_product(dy, values_EDF, ones_ED, ends);
  }
  at::Tensor values;
  {
    const core::MemoryScope scope(core::MemoryUse::gathered);
    values = matrices.values.to(dtype);
  }
  return grouped_product(dequantised(dy, dtype), values.contiguous(), ends);
}

}  // namespace finetune::model
