#pragma once
// SPDX-License-Identifier: Apache-2.0
// Matrix products of narrow floats on processors without instructions for them.

#include <cstdint>

#include "kernels/element.hpp"

namespace finetune::kernels {

/// Element (row, column) lies at data + row * of_row + column * of_column.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t of_row = 0, of_column = 1;
};

enum class Into { fresh, sum };

/// c = a b, or c += a b. Operands are widened panel by panel, multiplied and summed in fp32, and
/// the result is rounded once. Its bits depend on the operands alone: not on threads, nor, where
/// there are fused multiply-adds, on the processor.
///
/// Shapes: a [M, K], b [K, N], c [M, N] with neighbouring columns. T: float, bf16, f16.
template <class T>
void product(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c, Into into);

/// Scratch memory that each thread keeps once it has computed a product.
inline constexpr std::int64_t product_scratch_bytes = 1'253'376;

}  // namespace finetune::kernels
