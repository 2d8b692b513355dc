#pragma once
// SPDX-License-Identifier: Apache-2.0
// Products of all experts in one launch, by libtorch's grouped product.

#include <ATen/ATen.h>

#include <cstdint>

namespace finetune::model {

/// Whether a GPU has a kernel for them that waits for nobody: bf16, compute capability 9.x or 10.x.
/// Elsewhere libtorch copies the counts to the host and loops, for each product anew.
/// Source: _grouped_mm_cuda of libtorch 2.11.
bool has_grouped_products(at::Device device, at::ScalarType dtype);

/// Whether the kernel takes rows [M, K] and matrices [E, K, N] or [E, N, K]: every row, and every
/// column of what is transposed, begins at a multiple of 16 bytes, and K and N are multiples of 16
/// bytes. M > 0, E < 1024. How many rows each expert has does not matter.
bool takes_grouped(const at::Tensor& rows, const at::Tensor& matrices);
/// The same for the outer products of rows [M, K] and [M, N] of `num` experts.
bool takes_grouped_outer(const at::Tensor& a, const at::Tensor& b, std::int64_t num);

/// `ends` below: int32 [E] on the device, where the rows of each expert end. Rows behind the last
/// end are left as memory was. An expert may have no rows.

/// The rows of each expert times its matrix. Shapes: [M, K], [E, K, N] -> [M, N].
at::Tensor grouped_product(const at::Tensor& rows, const at::Tensor& matrices,
                           const at::Tensor& ends);

/// a^T b of the rows of each expert; 0 without rows. Shapes: [M, K], [M, N] -> [E, K, N].
at::Tensor grouped_outer_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends);

}  // namespace finetune::model
