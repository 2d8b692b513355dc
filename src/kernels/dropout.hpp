#pragma once
// SPDX-License-Identifier: Apache-2.0
// Dropout whose mask is computed, not stored.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// What distinguishes the masks of a run, in addition to the number of the token.
struct DropoutKey {
  std::uint64_t seed;
  std::uint32_t stream;  ///< of a layer and its module: no two places share one
  /// The number of the first element of a row, where others have those before it.
  std::int64_t first_channel = 0;
};

/// out[n][d] = x[n][d] / (1 - p) where it is kept, else 0. The same call on a gradient is the
/// backward pass.
template <class T>
struct Dropout {
  std::span<const T> x;                  ///< [N, D]
  std::span<const std::int64_t> tokens;  ///< [N], numbers of tokens, none twice in a run
  DropoutKey key;
  double p;          ///< in [0, 1)
  std::span<T> out;  ///< [N, D]; may be x
};

/// T is float or bf16; fp32 arithmetic.
///
/// Whether an element is kept depends on (key, tokens[n], first_channel + d) alone: never on a
/// rank, a thread or the other tokens of the call. p is rounded to a multiple of 1/65536, the
/// factor is not. Throws: ErrorKind::bug if sizes do not fit or p lies outside [0, 1).
template <class T>
void dropout(const Dropout<T>& args, const Place& place = {});

/// To compute the same mask elsewhere: of each 256 channels of a row, channel e takes bits 16 h to
/// 16 h + 15 of word w of the Philox4x32-10 block with the counter {token's low half, token's high
/// half, 32 * (d / 256) + e % 32, stream} and the key {seed's low half, seed's high half + 3}
/// (RandomUse::dropout), where 2 w + h = e / 32; it is kept unless they are below 65536 p.
inline constexpr std::int64_t dropout_tile = 256, dropout_lanes = 32;

}  // namespace finetune::kernels
