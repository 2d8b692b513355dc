#pragma once
// SPDX-License-Identifier: Apache-2.0
// Unpacking of 4-bit weights and dropout, put together from ATen operations; on any device.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/dropout.hpp"

namespace finetune::kernels::composed {

// To the bit what the kernels make. Temporaries stay below 64 MiB.

/// The maxima of a tensor in NF4: `values` [N / 64, rounded up] fp32; or, if that is undefined,
/// `codes` u8 of the same shape, `nested` fp32 [one for 256] and `offset`, fp32 with one element.
struct Nf4Maxima {
  at::Tensor values;
  at::Tensor codes = {}, nested = {}, offset = {};
};

/// codes [(count + 1) / 2] u8 -> [count] of `dtype` (float or bf16).
at::Tensor nf4_dequantize(const at::Tensor& codes, const Nf4Maxima& maxima, std::int64_t count,
                          at::ScalarType dtype);

/// `out`, contiguous, of float or bf16, receives the numbers of codes u8 [N / 2] with exponents u8
/// [N / 32] (kernels/mxfp4.hpp).
void mxfp4_dequantize_(const at::Tensor& out, const at::Tensor& codes, const at::Tensor& exponents);

/// Integers row by row (kernels/row_codes.hpp): codes u8 [R, C * bits / 8], scales fp32 [R, G],
/// zeros u8 [R, G] or undefined: half of the codes.
struct RowIntegersTensors {
  at::Tensor codes, scales, zeros;
  std::int64_t bits = 8;
  double factor = 1;
};

/// `out` [R, C], contiguous, float or bf16.
void integers_dequantize_(const at::Tensor& out, const RowIntegersTensors& matrix);

/// `out` [R, C], contiguous, float or bf16, receives the numbers of codes u8 [R, C / 2] with scales
/// u8 (e4m3) [R, C / 16], which `divisor` fp32 [1] divides.
void nvfp4_dequantize_(const at::Tensor& out, const at::Tensor& codes, const at::Tensor& scales,
                       const at::Tensor& divisor);

/// As in the files, with n = 32 / bits codes a word: qweight [I/n, O], qzeros [G, O/n] int32,
/// scales [G, O] f16, g_idx [I] int32.
struct GptqLayer {
  at::Tensor qweight, qzeros, scales, g_idx;
  std::int64_t stored_zero_offset;
  std::int64_t bits = 4;
};

/// `out` [I, O], float or bf16, with rows of any stride, receives W^T.
void gptq_dequantize_(at::Tensor& out, const GptqLayer& layer);

/// x [N, D] float or bf16, tokens [N] int64 -> [N, D].
at::Tensor dropout(const at::Tensor& x, const at::Tensor& tokens, const DropoutKey& key, double p);

}  // namespace finetune::kernels::composed
