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

/// As in the files: qweight [I/8, O], qzeros [G, O/8] int32, scales [G, O] f16, g_idx [I] int32.
struct GptqLayer {
  at::Tensor qweight, qzeros, scales, g_idx;
  std::int64_t stored_zero_offset;
};

/// `out` [I, O], float or bf16, with rows of any stride, receives W^T.
void gptq_dequantize_(at::Tensor& out, const GptqLayer& layer);

/// x [N, D] float or bf16, tokens [N] int64 -> [N, D].
at::Tensor dropout(const at::Tensor& x, const at::Tensor& tokens, const DropoutKey& key, double p);

}  // namespace finetune::kernels::composed
