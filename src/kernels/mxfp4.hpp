#pragma once
// SPDX-License-Identifier: Apache-2.0
// 4-bit floats (E2M1) of which 32 neighbours share a power of two (E8M0): MXFP4.
// Source: OCP Microscaling formats 1.0 (2023).

#include <array>
#include <cstdint>
#include <span>

namespace finetune::kernels {

/// Numbers that share a scale.
inline constexpr std::int64_t mxfp4_block = 32;

/// What the codes mean; the upper bit is the sign.
inline constexpr std::array<float, 16> mxfp4_levels = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                                       -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/// 2^(exponent - 127).
float mxfp4_scale(std::uint8_t exponent);

/// The largest exponent with which every code is a finite number in fp32. 255 says that all are
/// none.
inline constexpr std::uint8_t largest_mxfp4_exponent = 252;

/// codes [N / 2], of each byte the lower half first; exponents [N / 32]; out [N], T float or bf16,
/// rounded once. On the host's threads. Throws: ErrorKind::bug if sizes do not fit.
template <class T>
void mxfp4_dequantize(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> exponents,
                      std::span<T> out);

}  // namespace finetune::kernels
