#pragma once
// SPDX-License-Identifier: Apache-2.0
// Products of operands of 8 bits with scales: by libtorch's scaled product on a GPU, elsewhere by
// its definition.

#include <ATen/ATen.h>

#include <cstdint>

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

/// x rounded to the nearest values of `dtype`, ties to even. Scales are powers of two, the smallest
/// with which no value is too large: what is rounded away of a number does not depend on its
/// neighbours, unless it is far smaller than they are, and forward, backward and ranks of tensor
/// parallelism, whose tiles differ, see the same matrix. A tile that has an infinity or a NaN
/// becomes NaN as a whole; numbers below 2^-109 may become 0. x: [R, C], any strides.
Quantised quantise(const at::Tensor& x_RC, at::ScalarType dtype, const Tile& tile);

/// What it stands for, exact in bf16 and fp32. -> [R, C].
at::Tensor dequantised(const Quantised& of, at::ScalarType dtype);

/// x W^T, sums in fp32, rounded once to x's dtype. Shapes: [N, D], [F, D] -> [N, F].
at::Tensor fp8_product(const at::Tensor& x_ND, const at::Tensor& weight_FD, const Fp8Recipe& recipe,
                       Path path);

/// The gradient of x: dy W. Shapes: [N, F], [F, D] -> [N, D].
at::Tensor fp8_product_backward(const at::Tensor& dy_NF, const at::Tensor& weight_FD,
                                const Fp8Recipe& recipe, Path path);

/// Whether a GPU of this compute capability (90 for 9.0) has such products: from 8.9 on with a
/// scale per row, of generation 9 alone with blocks. Source: _scaled_mm_cuda of libtorch 2.11.
bool has_fp8_products(int capability, Fp8Scaling scaling);

}  // namespace finetune::model
