#pragma once
// SPDX-License-Identifier: Apache-2.0
// Matrices of few bits kept row by row, whose neighbouring inputs share a scale: integers, and the
// 4-bit floats of NVFP4.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"

namespace finetune::kernels {

/// R rows of C integers, in G groups along each row. Element c of row r, in group g, is
/// scales[r][g] * (code[r][c] - zeros[r][g]), and that times `factor`.
struct RowIntegers {
  std::span<const std::uint8_t> codes;  ///< [R, C * bits / 8], lowest bits first
  std::span<const float> scales;        ///< [R, G]
  std::span<const std::uint8_t> zeros;  ///< [R, G]; empty: all are half of the codes
  std::int64_t columns = 0;             ///< C
  std::int64_t group = 0;               ///< C / G
  std::int64_t bits = 8;                ///< 4 or 8
  float factor = 1;
};

/// out [R, C], T float or bf16: the fp32 products, rounded once to T. On the host's threads.
/// Throws: ErrorKind::bug if sizes do not fit.
template <class T>
void integers_dequantize(const RowIntegers& args, std::span<T> out);

/// Numbers that share a scale. Source: NVIDIA's NVFP4, as compressed-tensors stores it.
inline constexpr std::int64_t nvfp4_block = 16;

/// codes [N / 2], of each byte the lower half first, with the levels of MXFP4; scales [N / 16],
/// e4m3, each divided by `divisor` in fp32; out [N]. Otherwise as above.
template <class T>
void nvfp4_dequantize(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                      float divisor, std::span<T> out);

}  // namespace finetune::kernels
