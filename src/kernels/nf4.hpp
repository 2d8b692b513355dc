#pragma once
// SPDX-License-Identifier: Apache-2.0
// Weights of four bits: NormalFloat4 in blocks of 64, and 8-bit codes for the blocks' maxima.
//
// The bytes are those of bitsandbytes: a weight is level[code] * absmax[block], and under double
// quantisation absmax is nested_level[code] * nested_absmax[block of 256 maxima] + offset.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// Elements that share an absmax, and maxima that share a nested one.
inline constexpr std::int64_t nf4_block = 64, nested_block = 256;

/// The 16 levels of NF4, `quant_map` in files. Source: Dettmers et al. 2023 (arXiv 2305.14314).
std::span<const float, 16> nf4_levels();

/// The 256 levels of quantised maxima, `nested_quant_map` in files.
std::span<const float, 256> nested_levels();

/// The index of the first NaN or infinity, or -1. What follows takes finite numbers only: a NaN or
/// an infinity would spoil its block without a word, so ask here first.
std::int64_t first_non_finite(std::span<const float> values);

/// absmax[b] = the largest magnitude in block b; the last block may be shorter.
/// Throws: ErrorKind::bug if sizes do not fit.
void nf4_absmax(std::span<const float> values, std::span<float> absmax);

/// The nearest level of each value divided by its block's absmax, two codes a byte: the earlier one
/// in the upper half, and 7 (zero) next to an odd last one. A block of zeros has codes of 7.
///
/// `values` begin at the start of a block. The bytes are those of bitsandbytes 0.50 on a CPU: it
/// multiplies by the reciprocal of the maximum, but divides in a last, shorter block.
/// Throws: ErrorKind::bug if sizes do not fit.
void nf4_quantize(std::span<const float> values, std::span<const float> absmax,
                  std::span<std::uint8_t> codes);

/// The mean of all maxima of a tensor (0 if there are none), summed in fp64, so that its rounding
/// does not depend on the order.
float nested_offset(std::span<const float> absmax);

/// Codes of absmax - offset, and the largest magnitude of these differences in each block of 256.
///
/// `absmax` begins at the start of a block. The codes are those of bitsandbytes 0.50 on a CPU,
/// which rounds to a grid of 65536 points before it looks for the nearest level.
/// Throws: ErrorKind::bug if sizes do not fit.
void nested_quantize(std::span<const float> absmax, float offset, std::span<std::uint8_t> codes,
                     std::span<float> nested_absmax);

/// Packed weights and where they go. The piece begins at the start of a block, and with quantised
/// maxima also at the start of a block of these.
template <class T>
struct Nf4 {
  std::span<const std::uint8_t> codes;              ///< [(N + 1) / 2]
  std::span<const float> absmax = {};               ///< [N / 64, rounded up], or empty:
  std::span<const std::uint8_t> absmax_codes = {};  ///< as many
  std::span<const float> nested_absmax = {};        ///< one for 256 of these, rounded up
  float offset = 0.0f;
  std::span<const float> offset_at = {};  ///< [1], instead of it
  std::span<T> out;                       ///< [N]
};

/// T is float or bf16: the fp32 product, rounded once.
/// Throws: ErrorKind::bug if sizes do not fit.
template <class T>
void nf4_dequantize(const Nf4<T>& args, const Place& place = {});

}  // namespace finetune::kernels
