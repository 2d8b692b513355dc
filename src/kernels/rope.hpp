#pragma once
// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding of queries and keys, in place.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// Which way the pairs turn: backward is the transpose, which a gradient needs.
enum class Rotation { forward, backward };

/// Which channels of a head turn together.
enum class Pairs {
  halves,      ///< j with j + R/2: the "rotate half" convention of Hugging Face's Llama
  neighbours,  ///< 2 j with 2 j + 1: as in the paper, and in Llama 4
};

/// Turns pair j of each query and key head by the angle of the token's position. Values are left
/// alone, and of a head the channels from R on.
template <class T>
struct Rope {
  std::span<T> qkv;                         ///< [N, (query_heads + 2 key_heads) * K], in place
  std::span<const float> cos, sin;          ///< [L, R/2]
  std::span<const std::int64_t> positions;  ///< [N], each in [0, L)
  std::int64_t query_heads, key_heads;
  std::int64_t head_size;        ///< K
  std::int64_t rotary_size = 0;  ///< R, even; 0: K
  Rotation rotation = Rotation::forward;
  Pairs pairs = Pairs::halves;
};

/// T is float or bf16; arithmetic is fp32.
/// Throws: ErrorKind::bug if sizes do not fit or a position (on the host) lies outside the tables.
/// Source: Su et al. 2021 (arXiv 2104.09864).
template <class T>
void rope(const Rope<T>& args, const Place& place = {});

}  // namespace finetune::kernels
