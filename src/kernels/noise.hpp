#pragma once
// SPDX-License-Identifier: Apache-2.0
// Noise on activations that is computed, not stored.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"

namespace finetune::kernels {

/// x[n][d] += scales[n] * u with u uniform in [-1, 1).
template <class T>
struct Noise {
  std::span<T> x;                        ///< [N, D]
  std::span<const std::int64_t> tokens;  ///< [N], numbers of tokens, none twice in a run
  std::span<const float> scales;         ///< [N]
  std::uint64_t seed = 0;
};

/// T is float or bf16; fp32 arithmetic, the product rounded before the sum. On the host.
///
/// u depends on (seed, tokens[n], d) alone: never on a rank, a thread or the other tokens of the
/// call. Throws: ErrorKind::bug if sizes do not fit.
template <class T>
void add_noise(const Noise<T>& args);

/// To compute the same elsewhere: of each 128 channels of a row, channel e takes word e / 32 of the
/// Philox4x32-10 block with the counter {token's low half, token's high half, 32 * (d / 128) + e %
/// 32, 0} and the key {seed's low half, seed's high half + 7} (RandomUse::noise); of the word its
/// upper 24 bits, as a multiple of 2^-23, less 1.
inline constexpr std::int64_t noise_tile = 128, noise_lanes = 32;

}  // namespace finetune::kernels
