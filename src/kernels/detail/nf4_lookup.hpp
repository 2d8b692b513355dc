#pragma once
// SPDX-License-Identifier: Apache-2.0
// Inside kernels: the 64 numbers that a block of 4-bit codes stands for.

#include <cstdint>

#include "kernels/detail/functions.hpp"

// Compilers make no permutations of a register from a look-up in a table of 16; and loads one by
// one take six times as long. This is the one place where they are spelt out.
#if defined(__AVX512BW__) && !defined(FINETUNE_FOR_GPUS)
#define FINETUNE_PERMUTE_REGISTERS
#include <immintrin.h>
#endif

namespace finetune::kernels {

/// out[i] = table[code i]: 64 codes, two a byte, the earlier one in the upper half.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void look_up_block(const std::uint8_t* codes, const T (&table)[16],
                                               T* out) {
  for (int i = 0; i < 32; ++i) {
    out[2 * i] = table[codes[i] >> 4];
    out[2 * i + 1] = table[codes[i] & 15];
  }
}

#ifdef FINETUNE_PERMUTE_REGISTERS
// A byte becomes a lane of two indices. Permutations look at the low bits of an index only.

inline void look_up_block(const std::uint8_t* codes, const float (&table)[16], float* out) {
  const __m512 numbers = _mm512_loadu_ps(table);
  for (int part = 0; part < 4; ++part) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + 8 * part));
    const __m512i lanes = _mm512_cvtepu8_epi64(bytes);
    const __m512i indices =
        _mm512_or_si512(_mm512_srli_epi64(lanes, 4), _mm512_slli_epi64(lanes, 32));
    _mm512_storeu_ps(out + 16 * part, _mm512_permutexvar_ps(indices, numbers));
  }
}

inline void look_up_block(const std::uint8_t* codes, const bf16 (&table)[16], bf16* out) {
  const __m512i numbers =
      _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(table)));
  for (int part = 0; part < 2; ++part) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + 16 * part));
    const __m512i lanes = _mm512_cvtepu8_epi32(bytes);
    // The numbers are there twice, so that bit 4 of an index does not matter.
    const __m512i indices =
        _mm512_or_si512(_mm512_srli_epi32(lanes, 4), _mm512_slli_epi32(lanes, 16));
    _mm512_storeu_si512(out + 32 * part, _mm512_permutexvar_epi16(indices, numbers));
  }
}
#endif

}  // namespace finetune::kernels
