#pragma once
// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding inside kernels: random bits of neighbouring elements, and bf16 rounded by
// them.

#include <cstdint>
#include <type_traits>

#include "core/random.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/functions.hpp"
#include "kernels/detail/philox_lanes.hpp"
#include "kernels/rounding.hpp"

namespace finetune::kernels {

/// Random bits of the elements of one step, as rounding.hpp defines them.
struct RoundingBits {
  std::uint32_t key0 = 0, key1 = 0, period0 = 0, period1 = 0, shift = 0;

  RoundingBits() = default;
  explicit RoundingBits(const RoundingKey& key)
      : key0(static_cast<std::uint32_t>(key.seed)),
        key1(static_cast<std::uint32_t>(key.seed >> 32) +
             static_cast<std::uint32_t>(core::RandomUse::rounding)),
        period0(static_cast<std::uint32_t>(key.step / rounding_period)),
        period1(static_cast<std::uint32_t>(key.step / rounding_period >> 32)),
        shift(static_cast<std::uint32_t>(key.step % rounding_period) * rounding_stride) {}

  /// Those of element `element` of the model.
  KOKKOS_INLINE_FUNCTION std::uint32_t of(std::int64_t element) const {
    const std::int64_t place = element % rounding_tile;
    const auto block = static_cast<std::uint64_t>(element / rounding_tile * rounding_lanes +
                                                  place % rounding_lanes);
    PhiloxLanes<1> random{{{static_cast<std::uint32_t>(block)},
                           {static_cast<std::uint32_t>(block >> 32)},
                           {period0},
                           {period1}}};
    random.run(key0, key1);
    return random.words[place / rounding_lanes][0] + shift;
  }

  /// Those of elements `first` to `first + count - 1` of the model.
  KOKKOS_INLINE_FUNCTION void draw(std::int64_t first, std::int64_t count,
                                   std::uint32_t* out) const {
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t begin = (first + done) % rounding_tile;
      const std::int64_t left = count - done, wanted = rounding_tile - begin;
      const std::int64_t length = left < wanted ? left : wanted;
      std::uint32_t tile[rounding_tile];
      draw_tile(static_cast<std::uint64_t>((first + done) / rounding_tile), tile);
      for (std::int64_t i = 0; i < length; ++i)
        out[done + i] = tile[begin + i];
      done += length;
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void draw_tile(std::uint64_t tile, std::uint32_t* out) const {
    constexpr int lanes = rounding_lanes;
    const std::uint64_t block = tile * lanes;
    PhiloxLanes<lanes> random;
    for (int i = 0; i < lanes; ++i) {
      random.words[0][i] = static_cast<std::uint32_t>(block) + static_cast<std::uint32_t>(i);
      random.words[1][i] = static_cast<std::uint32_t>(block >> 32);
      random.words[2][i] = period0;
      random.words[3][i] = period1;
    }
    random.run(key0, key1);
    for (int word = 0; word < 4; ++word)
      for (int i = 0; i < lanes; ++i)
        out[word * lanes + i] = random.words[word][i] + shift;
  }
};

/// The 16 bits by which an element's weight or moment is rounded.
KOKKOS_FORCEINLINE_FUNCTION std::uint32_t bits_for_weight(std::uint32_t random) {
  return random >> 16;
}
// Eight bits decide, and half of what they cannot say keeps the mean where it is.
KOKKOS_FORCEINLINE_FUNCTION std::uint32_t bits_for_exp_avg(std::uint32_t random) {
  return (random & 0xFF00u) | 0x80u;
}
KOKKOS_FORCEINLINE_FUNCTION std::uint32_t bits_for_exp_avg_sq(std::uint32_t random) {
  return (random & 0xFFu) << 8 | 0x80u;
}

/// Adding below the last digit that stays carries with the probability of what is cut off; bits of
/// neighbouring numbers are neighbours.
KOKKOS_FORCEINLINE_FUNCTION bf16 round_by(float value, std::uint32_t random16) {
  const std::uint32_t bits = bits_of(value);
  const auto rounded = static_cast<bf16>((bits + random16) >> 16);
  return (bits & 0x7F800000u) == 0x7F800000u ? round_to<bf16>(value) : rounded;
}

/// What is stored of `value`: bf16 rounded by `random16` if that is wanted.
template <class T, bool is_stochastic>
KOKKOS_FORCEINLINE_FUNCTION T stored_as(float value, [[maybe_unused]] std::uint32_t random16) {
  if constexpr (is_stochastic && std::is_same_v<T, bf16>) {
    return round_by(value, random16);
  } else {
    return round_to<T>(value);
  }
}

}  // namespace finetune::kernels
