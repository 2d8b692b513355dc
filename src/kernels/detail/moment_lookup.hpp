#pragma once
// SPDX-License-Identifier: Apache-2.0
// Inside kernels: the levels that a row of 8-bit moments stands for.

#include <cstdint>

#include "kernels/detail/functions.hpp"
#include "kernels/detail/moment_table.hpp"

// Compilers make loads one by one, or a gather that is not faster, from a look-up in a table of
// 256; permutations of its bytes take a fifth of the time. As in nf4_lookup.hpp.
#if defined(__AVX512VBMI__) && !defined(FINETUNE_FOR_GPUS)
#define FINETUNE_PERMUTE_BYTES
#include <immintrin.h>
#endif

namespace finetune::kernels {

/// out[i] = level of codes[i], for i < count. Behind it, out may be written up to a multiple of 64.
#ifdef FINETUNE_PERMUTE_BYTES
inline void look_up_levels(const MomentTable& table, const std::uint8_t* codes, std::int64_t count,
                           float* out) {
  // So that the interleaving below, which stays within quarters, leaves the numbers in their order.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (std::int64_t first = 0; first < count; first += 64) {
    const std::int64_t left = count - first;
    const __mmask64 is_there = left < 64 ? (std::uint64_t{1} << left) - 1 : ~std::uint64_t{0};
    const __m512i indices =
        _mm512_permutexvar_epi32(order, _mm512_maskz_loadu_epi8(is_there, codes + first));
    const __mmask64 is_upper = _mm512_movepi8_mask(indices);
    __m512i bytes[4];
    for (int i = 0; i < 4; ++i) {
      const std::uint8_t* of = table.bytes[i];
      const __m512i lower =
          _mm512_permutex2var_epi8(_mm512_load_si512(of), indices, _mm512_load_si512(of + 64));
      const __m512i upper = _mm512_permutex2var_epi8(_mm512_load_si512(of + 128), indices,
                                                     _mm512_load_si512(of + 192));
      bytes[i] = _mm512_mask_blend_epi8(is_upper, lower, upper);
    }
    const __m512i low_even = _mm512_unpacklo_epi8(bytes[0], bytes[1]);
    const __m512i low_odd = _mm512_unpackhi_epi8(bytes[0], bytes[1]);
    const __m512i high_even = _mm512_unpacklo_epi8(bytes[2], bytes[3]);
    const __m512i high_odd = _mm512_unpackhi_epi8(bytes[2], bytes[3]);
    _mm512_storeu_si512(out + first, _mm512_unpacklo_epi16(low_even, high_even));
    _mm512_storeu_si512(out + first + 16, _mm512_unpackhi_epi16(low_even, high_even));
    _mm512_storeu_si512(out + first + 32, _mm512_unpacklo_epi16(low_odd, high_odd));
    _mm512_storeu_si512(out + first + 48, _mm512_unpackhi_epi16(low_odd, high_odd));
  }
}
#else
KOKKOS_FORCEINLINE_FUNCTION void look_up_levels(const MomentTable& table, const std::uint8_t* codes,
                                                std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = table.by_code[codes[i]];
}
#endif

}  // namespace finetune::kernels
