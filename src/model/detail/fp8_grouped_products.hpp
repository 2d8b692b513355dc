#pragma once
// SPDX-License-Identifier: Apache-2.0
// Products of all experts in one launch, with operands of 8 bits.

#include <ATen/ATen.h>

#include "model/fp8.hpp"
#include "model/fp8_products.hpp"

namespace finetune::model {

/// Whether a GPU has libtorch's scaled grouped product: compute capability 9.x, a scale per row,
/// and e4m3 in both operands. Source: _scaled_grouped_mm_cuda of libtorch 2.11.
///
/// Elsewhere, for blocks, and for gradients in e5m2, the operands are rounded all the same, and the
/// grouped product of bf16 multiplies what they stand for: nobody waits for counts, the numbers are
/// those of 8 bits, and the time and memory those of bf16.
bool has_fp8_grouped_products(at::Device device, Fp8Scaling scaling);

/// What `fp8_product` and `fp8_product_backward` are of one expert (model/fp8_products.hpp), of the
/// rows of each. `matrices`: values [E, F, D], scales [E, ...], at one distance; `ends` as of
/// `grouped_product`, and so are alignment and rows behind the last end (takes_grouped).

/// Shapes: [M, D], [E, F, D] -> [M, F].
at::Tensor fp8_grouped_product(const at::Tensor& x_MD, const Quantised& matrices,
                               const at::Tensor& ends, const Fp8Recipe& recipe);
/// Shapes: [M, F], [E, F, D] -> [M, D].
at::Tensor fp8_grouped_product_backward(const at::Tensor& dy_MF, const Quantised& matrices,
                                        const at::Tensor& ends, const Fp8Recipe& recipe);

}  // namespace finetune::model
