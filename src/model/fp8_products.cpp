// SPDX-License-Identifier: Apache-2.0
#include "model/fp8_products.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "model/products.hpp"

namespace finetune::model {

at::Tensor fp8_scales(const at::Tensor& largest, at::ScalarType dtype) {
  constexpr int mantissa_bits = 23;
  constexpr std::int64_t beyond_1_75 = (1 << mantissa_bits) - (3 << (mantissa_bits - 2));
  constexpr std::int64_t least_exponent = 127 - 100;
  // The largest finite numbers are 1.75 * 2^8 and 1.75 * 2^15.
  const std::int64_t exponent_of_largest = dtype == at::kFloat8_e5m2 ? 15 : 8;
  // The bits of a float are its exponent and what is behind the point: 1.75 is the last that fits.
  const at::Tensor exponents = largest.view(at::kInt)
                                   .add(beyond_1_75 - 1)
                                   .bitwise_right_shift(mantissa_bits)
                                   .sub_(exponent_of_largest)
                                   .clamp_min_(least_exponent);
  const at::Tensor scales = exponents.bitwise_left_shift(mantissa_bits).view(at::kFloat);
  return scales + (largest - largest);
}

namespace {

/// [R, C] -> [R / rows, rows, C / columns, columns].
at::Tensor in_tiles(const at::Tensor& x, const Tile& tile) {
  return x.unflatten(1, {-1, tile.columns}).unflatten(0, {-1, tile.rows});
}

/// Of each tile, fp32. On a GPU in one pass over `tiles`; on the CPU that would read a copy in
/// fp32.
at::Tensor largest_magnitudes(const at::Tensor& tiles) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (tiles.is_cpu()) return tiles.abs().amax({1, 3}, /*keepdim=*/true).to(at::kFloat);
  return at::linalg_vector_norm(tiles, infinity, {1, 3}, /*keepdim=*/true, at::kFloat);
}

}  // namespace

Quantised quantise(const at::Tensor& x_RC, at::ScalarType dtype, const Tile& wanted) {
  const std::int64_t rows = x_RC.size(0), columns = x_RC.size(1);
  const Tile tile{wanted.rows, wanted.columns == 0 ? columns : wanted.columns};
  core::check(columns > 0 && rows % tile.rows == 0 && columns % tile.columns == 0,
              "tiles of a scale divide a matrix");
  const Quantised made{
      at::empty({rows, columns}, x_RC.options().dtype(dtype)),
      at::empty({rows / tile.rows, columns / tile.columns}, x_RC.options().dtype(at::kFloat))};
  // ATen's functions for CPUs write what they compute before it is rounded.
  const std::int64_t most_rows = x_RC.is_cpu() ? fp8_piece / columns : rows;
  const std::int64_t step = std::max<std::int64_t>(1, most_rows / tile.rows) * tile.rows;
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t length = std::min(step, rows - row);
    const at::Tensor tiles = in_tiles(x_RC.narrow(0, row, length), tile);
    const at::Tensor scales = fp8_scales(largest_magnitudes(tiles), dtype);
    // Quotients by powers of two are exact in any format, and within bounds.
    at::Tensor values = in_tiles(made.values.narrow(0, row, length), tile);
    at::div_out(values, tiles, scales.to(x_RC.scalar_type()));
    made.scales.narrow(0, row / tile.rows, length / tile.rows).copy_(scales.flatten(1));
  }
  return made;
}

at::Tensor dequantised(const Quantised& of, at::ScalarType dtype) {
  at::Tensor whole = of.values.to(dtype);
  const Tile tile{of.values.size(0) / std::max<std::int64_t>(1, of.scales.size(0)),
                  of.values.size(1) / of.scales.size(1)};
  if (whole.numel() > 0) in_tiles(whole, tile).mul_(of.scales.to(dtype).unsqueeze(1).unsqueeze(3));
  return whole;
}

Tile tile_of_matrix(Fp8Scaling scaling) {
  return scaling == Fp8Scaling::rowwise ? Tile{1, 0} : Tile{fp8_block, fp8_block};
}

Tile tile_of_tokens(Fp8Scaling scaling) {
  return {1, scaling == Fp8Scaling::rowwise ? 0 : fp8_block};
}

at::ScalarType format_of_gradients(const Fp8Recipe& recipe) {
  return recipe.gradients == Fp8Gradients::e5m2 ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn;
}

namespace {

/// By libtorch's scaled product, which reads the columns of b and, of blocks, columns of scales.
void scaled_product_out(at::Tensor& out, const Quantised& a, const Quantised& b,
                        const Fp8Recipe& recipe) {
  const bool is_rowwise = recipe.scaling == Fp8Scaling::rowwise;
  const at::Tensor scales_of_a = is_rowwise ? a.scales : a.scales.t().contiguous().t();
  // Sums of rows stay in the tensor cores, whose kernel is far faster; of blocks each is added up
  // outside of them.
  at::_scaled_mm_out(out, a.values, b.values.t(), scales_of_a, b.scales.t(), {}, {},
                     out.scalar_type(), /*use_fast_accum=*/is_rowwise);
}

/// a b^T. What is given away is freed as soon as it was read. `out`, if it is not defined yet, is
/// made once that has happened.
void product_of(at::Tensor& out, const at::Tensor& a_NK, at::ScalarType dtype_of_a, Quantised b_MK,
                const Fp8Recipe& recipe, Path path) {
  const at::ScalarType dtype = a_NK.scalar_type();
  if (!a_NK.is_cpu()) {
    const Quantised a = quantise(a_NK, dtype_of_a, tile_of_tokens(recipe.scaling));
    if (!out.defined()) out = at::empty({a_NK.size(0), b_MK.values.size(0)}, a_NK.options());
    return scaled_product_out(out, a, b_MK, recipe);
  }
  const at::Tensor of_b = dequantised(b_MK, dtype);
  const std::int64_t outputs = of_b.size(0);
  b_MK = {};
  Quantised a = quantise(a_NK, dtype_of_a, tile_of_tokens(recipe.scaling));
  const at::Tensor of_a = dequantised(a, dtype);
  a = {};
  if (!out.defined()) out = at::empty({of_a.size(0), outputs}, of_a.options());
  product_out(out, of_a, of_b.t(), path);
}

at::Tensor product_of(const at::Tensor& a_NK, at::ScalarType dtype_of_a, Quantised b_MK,
                      const Fp8Recipe& recipe, Path path) {
  at::Tensor out;
  product_of(out, a_NK, dtype_of_a, std::move(b_MK), recipe, path);
  return out;
}

/// The products of GPUs read both operands along the dim over which they sum.
at::Tensor transposed(const at::Tensor& values) {
  if (values.is_cpu()) return values.t();
  return values.view(at::kByte).t().contiguous().view(values.scalar_type());
}

}  // namespace

Quantised quantise_matrix(const at::Tensor& weight_FD, const Fp8Recipe& recipe) {
  return quantise(weight_FD, at::kFloat8_e4m3fn, tile_of_matrix(recipe.scaling));
}

at::Tensor fp8_product(const at::Tensor& x_ND, Quantised weight_FD, const Fp8Recipe& recipe,
                       Path path) {
  return product_of(x_ND, at::kFloat8_e4m3fn, std::move(weight_FD), recipe, path);
}

at::Tensor fp8_product_backward(const at::Tensor& dy_NF, Quantised weight_FD,
                                const Fp8Recipe& recipe, Path path) {
  const at::Tensor scales_FK = std::move(weight_FD.scales);
  Quantised weight_DF{transposed(weight_FD.values), {}};
  weight_FD = {};
  if (recipe.scaling == Fp8Scaling::block) {
    weight_DF.scales = scales_FK.t().contiguous();
    return product_of(dy_NF, format_of_gradients(recipe), std::move(weight_DF), recipe, path);
  }
  weight_DF.scales = at::ones({weight_DF.values.size(0), 1}, scales_FK.options());
  return product_of(dy_NF * scales_FK.t().to(dy_NF.scalar_type()), format_of_gradients(recipe),
                    std::move(weight_DF), recipe, path);
}

void fp8_weight_gradient_out(at::Tensor& out, const at::Tensor& dy_NF, const at::Tensor& x_ND,
                             const Fp8Recipe& recipe, Path path) {
  const std::int64_t tokens = dy_NF.size(0);
  const std::int64_t padding = fp8_padded_tokens(tokens, recipe.scaling) - tokens;
  const auto over_tokens = [&](const at::Tensor& of_tokens) {
    return padding == 0 ? of_tokens.t() : at::constant_pad_nd(of_tokens, {0, 0, 0, padding}, 0).t();
  };
  product_of(out, over_tokens(dy_NF), format_of_gradients(recipe),
             quantise_matrix(over_tokens(x_ND), recipe), recipe, path);
}

bool has_fp8_blocks(const std::string& cuda) {
  int major = 0, minor = 0;
  if (std::sscanf(cuda.c_str(), "%d.%d", &major, &minor) != 2) return false;
  return major > 12 || (major == 12 && minor >= 9);
}

bool has_fp8_products(int capability, Fp8Scaling scaling) {
  constexpr int ada = 89, hopper = 9;
  return scaling == Fp8Scaling::rowwise ? capability >= ada : capability / 10 == hopper;
}

}  // namespace finetune::model
