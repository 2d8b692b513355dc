#pragma once
// SPDX-License-Identifier: Apache-2.0
// Products of fp32 panels, and how matrices of any element become panels.
//
// A panel of the right side is 16 columns, the inner dimension down; of the left side 6 rows. The
// shape is the same for every width of vectors, and each sum is made by fused multiply-adds in the
// order of the inner dimension: so are the bits. Source: Goto & van de Geijn 2008 (doi
// 10.1145/1356052.1356053).

#include <algorithm>
#include <cstdint>

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernels/detail/arithmetic.hpp"

namespace finetune::kernels::panels {

using std::int64_t;

inline constexpr int64_t rows = 6, columns = 16;
/// What packing may write behind the last panel.
inline constexpr int64_t slack = 8;

/// C [6 row_panels, 16 column_panels] = A B, or C += A B.
struct Block {
  int64_t row_panels, column_panels, inner;
  const float* a;  ///< element (row, i) at a[row / 6 * a_panel + row % 6 * a_row + i * a_step]
  int64_t a_panel, a_row, a_step;
  const float* b;  ///< element (i, column) at b[column / 16 * b_panel + 16 * i + column % 16]
  int64_t b_panel;
  float* c;
  int64_t c_row;  ///< elements from a row of C to the next
  bool adds;
};

/// With the widest vectors that this processor and libtorch's ATEN_CPU_CAPABILITY allow.
void multiply(const Block& block);

inline int64_t round_up(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

#if defined(__AVX2__) && defined(__F16C__)
inline __m256 load_8(const float* x) {
  return _mm256_loadu_ps(x);
}
inline __m128i load_8_halves(const void* x) {
  return _mm_loadu_si128(static_cast<const __m128i*>(x));
}
inline __m256 load_8(const bf16* x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_8_halves(x)), 16));
}
inline __m256 load_8(const f16* x) {
  return _mm256_cvtph_ps(load_8_halves(x));
}

/// The rows of an 8 by 8 matrix become its columns.
inline void transpose_8(__m256* x) {
  __m256 pairs[8], fours[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
    fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
    x[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
  }
}

/// Eight steps of the inner dimension of one panel whose lines have it in neighbouring elements.
template <int64_t width, class T>
void turn_8(const T* x, int64_t of_line, float* out) {
  for (int64_t first = 0; first < width; first += 8) {
    __m256 lines[8];
    for (int64_t i = 0; i < 8; ++i)
      lines[i] = first + i < width ? load_8(x + (first + i) * of_line) : _mm256_setzero_ps();
    transpose_8(lines);
    // What is behind a panel of six is overwritten by the next step.
    for (int64_t i = 0; i < 8; ++i)
      _mm256_storeu_ps(out + i * width + first, lines[i]);
  }
}

/// One step of a panel whose lines are neighbours.
template <int64_t width, class T>
void copy_step(const T* x, float* out) {
  for (int64_t first = 0; first + 8 <= width; first += 8)
    _mm256_storeu_ps(out + first, load_8(x + first));
  for (int64_t i = width / 8 * 8; i < width; ++i)
    out[i] = to_float(x[i]);
}
#else
template <int64_t width, class T>
void turn_8(const T* x, int64_t of_line, float* out) {
  for (int64_t i = 0; i < width; ++i)
    for (int64_t step = 0; step < 8; ++step)
      out[step * width + i] = to_float(x[i * of_line + step]);
}

template <int64_t width, class T>
void copy_step(const T* x, float* out) {
  for (int64_t i = 0; i < width; ++i)
    out[i] = to_float(x[i]);
}
#endif

/// Lines of a matrix (its rows, or its columns) in panels of `width`; element (line, i) lies at
/// x[line * of_line + i * of_inner]. The last panel is filled up with zeros. Shapes: out
/// [round_up(lines, width) * inner + slack].
template <int64_t width, class T>
void pack(const T* x, int64_t lines, int64_t inner, int64_t of_line, int64_t of_inner, float* out) {
  for (int64_t line = 0; line < lines; line += width, out += width * inner) {
    const T* from = x + line * of_line;
    const int64_t count = std::min(width, lines - line);
    int64_t i = 0;
    if (count == width && of_line == 1) {
      for (; i < inner; ++i)
        copy_step<width>(from + i * of_inner, out + i * width);
    } else if (count == width && of_inner == 1) {
      for (; i + 8 <= inner; i += 8)
        turn_8<width>(from + i, of_line, out + i * width);
    }
    for (; i < inner; ++i)
      for (int64_t k = 0; k < width; ++k)
        out[i * width + k] = k < count ? to_float(from[k * of_line + i * of_inner]) : 0.0f;
  }
}

}  // namespace finetune::kernels::panels
