#pragma once
// SPDX-License-Identifier: Apache-2.0
// Products of operands of 8 bits with scales: by libtorch's scaled product on a GPU, elsewhere by
// its definition.

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "model/fp8.hpp"
#include "model/path.hpp"

namespace finetune::model {

/// values * scales, each scale for its tile of the values.
struct Quantised {
  at::Tensor values;  ///< [R, C], Float8_e4m3fn or Float8_e5m2, neighbouring columns
  at::Tensor scales;  ///< fp32 [R / rows of a tile, C / columns of a tile]
};

/// What shares a scale, in elements. Divides the tensor; 0 columns: all.
struct Tile {
  std::int64_t rows = 1;
  std::int64_t columns = 0;
};

/// The smallest powers of two by which tiles with these largest magnitudes, in fp32, fit `dtype`;
/// NaN for what is not finite. Products of scales and smallest values stay normal numbers.
at::Tensor fp8_scales(const at::Tensor& largest, at::ScalarType dtype);

/// x rounded to the nearest values of `dtype`, ties to even. Scales are powers of two, the smallest
/// with which no value is too large: what is rounded away of a number does not depend on its
/// neighbours, unless it is far smaller than they are, and forward, backward and ranks of tensor
/// parallelism, whose tiles differ, see the same matrix. A tile that has an infinity or a NaN
/// becomes NaN as a whole; numbers below 2^-109 may become 0. x: [R, C], any strides.
Quantised quantise(const at::Tensor& x_RC, at::ScalarType dtype, const Tile& tile);

/// What it stands for, exact in bf16 and fp32. -> [R, C].
at::Tensor dequantised(const Quantised& of, at::ScalarType dtype);

/// What shares a scale in a matrix.
Tile tile_of_matrix(Fp8Scaling scaling);
/// And in what it is multiplied with, activations or gradients of tokens.
Tile tile_of_tokens(Fp8Scaling scaling);

/// In which gradients of tokens are rounded.
at::ScalarType format_of_gradients(const Fp8Recipe& recipe);

/// A matrix as products read it, forward and backward: [F, D] in e4m3, scaled by rows or blocks.
Quantised quantise_matrix(const at::Tensor& weight_FD, const Fp8Recipe& recipe);

/// x W^T, sums in fp32, rounded once to x's dtype. Shapes: [N, D], [F, D] -> [N, F].
at::Tensor fp8_product(const at::Tensor& x_ND, Quantised weight_FD, const Fp8Recipe& recipe,
                       Path path);

/// The gradient of x: dy W, of the matrix that `fp8_product` reads, bit by bit. Scales of rows lie
/// along the dim over which this product sums: they become part of dy before that is rounded, which
/// is exact, as they are powers of two. So the matrix is transposed, and never rounded again.
/// Shapes: [N, F], [F, D] -> [N, D].
at::Tensor fp8_product_backward(const at::Tensor& dy_NF, Quantised weight_FD,
                                const Fp8Recipe& recipe, Path path);

/// The gradient of the matrix: dy^T x, both rounded again with scales along tokens: a row of each
/// operand is an output, or an input, of all of them. Shapes: [N, F], [N, D] -> `out` [F, D].
void fp8_weight_gradient_out(at::Tensor& out, const at::Tensor& dy_NF, const at::Tensor& x_ND,
                             const Fp8Recipe& recipe, Path path);

/// Whether a GPU of this compute capability (90 for 9.0) has such products: from 8.9 on with a
/// scale per row, of generation 9 alone with blocks. Source: _scaled_mm_cuda of libtorch 2.11.
bool has_fp8_products(int capability, Fp8Scaling scaling);

/// Whether CUDA of this version ("13.0") has those with a scale per block: from 12.9 on. Source:
/// release notes of cuBLAS 12.9.
bool has_fp8_blocks(const std::string& cuda);

}  // namespace finetune::model
