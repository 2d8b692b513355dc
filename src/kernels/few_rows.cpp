// SPDX-License-Identifier: Apache-2.0
#include "kernels/few_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/host_threads.hpp"

#if defined(__AVX512BF16__) || defined(__FMA__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace finetune::kernels {
namespace {

// As wide as the registers of the processor that this is compiled for.
#if defined(__AVX512F__)
constexpr std::int64_t lanes = 16;
#elif defined(__AVX__)
constexpr std::int64_t lanes = 8;
#else
constexpr std::int64_t lanes = 4;
#endif
using Floats [[gnu::vector_size(lanes * 4)]] = float;
using Words [[gnu::vector_size(lanes * 4)]] = std::uint32_t;
using Halves [[gnu::vector_size(lanes * 2)]] = std::uint16_t;

// Rows of weights and of x whose products are summed at once: as many sums as there are registers,
// beside what they are summed from.
constexpr std::int64_t rows_of_w = 4, rows_of_x = lanes == 16 ? 4 : 3;

Floats load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

/// The upper half of a float.
Floats load(const bf16* from) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  // In one instruction, which the compiler does not find.
  const auto words =
      Words(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))) << 16;
#else
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
#endif
  Floats values;
  std::memcpy(&values, &words, sizeof values);
  return values;
}

using Four [[gnu::vector_size(16)]] = float;
using Eight [[gnu::vector_size(32)]] = float;
using Sixteen [[gnu::vector_size(64)]] = float;

/// The halves of a register are added until four lanes are left.
[[maybe_unused]] Four four_of(const Four& values) {
  return values;
}
[[maybe_unused]] Four four_of(const Eight& values) {
  return __builtin_shufflevector(values, values, 0, 1, 2, 3) +
         __builtin_shufflevector(values, values, 4, 5, 6, 7);
}
[[maybe_unused]] Four four_of(const Sixteen& values) {
  return four_of(__builtin_shufflevector(values, values, 0, 1, 2, 3, 4, 5, 6, 7) +
                 __builtin_shufflevector(values, values, 8, 9, 10, 11, 12, 13, 14, 15));
}

/// In an order that stays, whatever a processor adds up at once.
float sum_of(const Floats& values) {
  const Four four = four_of(values);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/// The same of four registers at once: what each adds up is turned to lie in one lane.
Four sums_of(const Floats& a, const Floats& b, const Floats& c, const Floats& d) {
  const Four fa = four_of(a), fb = four_of(b), fc = four_of(c), fd = four_of(d);
  const Four ab_even = __builtin_shufflevector(fa, fb, 0, 4, 2, 6),
             ab_odd = __builtin_shufflevector(fa, fb, 1, 5, 3, 7),
             cd_even = __builtin_shufflevector(fc, fd, 0, 4, 2, 6),
             cd_odd = __builtin_shufflevector(fc, fd, 1, 5, 3, 7);
  const Four even = __builtin_shufflevector(ab_even, cd_even, 0, 1, 4, 5) +
                    __builtin_shufflevector(ab_even, cd_even, 2, 3, 6, 7);
  const Four odd = __builtin_shufflevector(ab_odd, cd_odd, 0, 1, 4, 5) +
                   __builtin_shufflevector(ab_odd, cd_odd, 2, 3, 6, 7);
  return even + odd;
}

/// Of the fp32 sums of products of so many neighbours at once.
template <class T, class X>
struct Lanes {
  static constexpr std::int64_t width = lanes;
  static auto of(const X* from) { return load(from); }
  static auto of_weights(const T* from) { return load(from); }
  static void add(Floats& sum, const Floats& a, const Floats& b) {
#if defined(__FMA__) && !defined(__AVX512F__)
    // In the same way in every block: left alone, the compiler fuses some of them.
    sum = _mm256_fmadd_ps(a, b, sum);
#else
    sum += a * b;
#endif
  }
};

#ifdef __AVX512BF16__
constexpr bool multiplies_bf16 = true;
/// Pairs of neighbours are multiplied as they are, and added to fp32.
template <>
struct Lanes<bf16, bf16> {
  static constexpr std::int64_t width = 2 * lanes;
  static __m512bh of(const bf16* from) {
    __m512bh values;
    std::memcpy(&values, from, sizeof values);
    return values;
  }
  static __m512bh of_weights(const bf16* from) { return of(from); }
  static void add(Floats& sum, const __m512bh& a, const __m512bh& b) {
    sum = _mm512_dpbf16_ps(sum, a, b);
  }
};
#else
constexpr bool multiplies_bf16 = false;
#endif

/// y of `num_w` rows of w and `num_x` rows of x.
template <class T, class X, std::int64_t num_w, std::int64_t num_x>
void block(const X* x, const T* w, T* y, std::int64_t n, std::int64_t k) {
  using Of = Lanes<T, X>;
  Floats sums[num_w][num_x] = {};
  const std::int64_t whole = k / Of::width * Of::width;
  const auto add = [&](std::int64_t i) {
    decltype(Of::of(x)) of_x[num_x];
    for (std::int64_t b = 0; b < num_x; ++b)
      of_x[b] = Of::of(x + b * k + i);
    for (std::int64_t a = 0; a < num_w; ++a) {
      const auto of_w = Of::of_weights(w + a * k + i);
      for (std::int64_t b = 0; b < num_x; ++b)
        Of::add(sums[a][b], of_w, of_x[b]);
    }
  };
  // A line of memory at a time, while the same of the next rows is on its way: what processors
  // fetch ahead by themselves begins anew with each row.
  constexpr std::int64_t line = std::max<std::int64_t>(64 / sizeof(T), Of::width);
  std::int64_t i = 0;
  for (; i + line <= whole; i += line) {
    for (std::int64_t a = 0; a < num_w; ++a)
      __builtin_prefetch(w + (num_w + a) * k + i);
    for (std::int64_t j = 0; j < line; j += Of::width)
      add(i + j);
  }
  for (; i < whole; i += Of::width)
    add(i);
  for (std::int64_t b = 0; b < num_x; ++b) {
    float totals[num_w];
    if constexpr (num_w == 4) {
      const Four four = sums_of(sums[0][b], sums[1][b], sums[2][b], sums[3][b]);
      std::memcpy(totals, &four, sizeof totals);
    } else {
      for (std::int64_t a = 0; a < num_w; ++a)
        totals[a] = sum_of(sums[a][b]);
    }
    for (std::int64_t a = 0; a < num_w; ++a) {
      // Rounded once, however many rows the compiler computes together.
      for (std::int64_t j = whole; j < k; ++j)
        totals[a] = std::fma(to_float(w[a * k + j]), to_float(x[b * k + j]), totals[a]);
      y[b * n + a] = round_to<T>(totals[a]);
    }
  }
}

template <class T, class X, std::int64_t num_w>
void blocks_of_x(const X* x, const T* w, T* y, std::int64_t m, std::int64_t n, std::int64_t k) {
  std::int64_t row = 0;
  for (; row + rows_of_x <= m; row += rows_of_x)
    block<T, X, num_w, rows_of_x>(x + row * k, w, y + row * n, n, k);
  for (; row < m; ++row)
    block<T, X, num_w, 1>(x + row * k, w, y + row * n, n, k);
}

template <class T, class X>
void rows(const X* x, const T* w, T* y, std::int64_t m, std::int64_t n, std::int64_t k,
          std::int64_t first, std::int64_t last) {
  std::int64_t row = first;
  for (; row + rows_of_w <= last; row += rows_of_w)
    blocks_of_x<T, X, rows_of_w>(x, w + row * k, y + row, m, n, k);
  for (; row < last; ++row)
    blocks_of_x<T, X, 1>(x, w + row * k, y + row, m, n, k);
}

template <class T, class X>
void by_rows(const X* x, std::span<const T> w, std::span<T> y, std::int64_t m, std::int64_t n,
             std::int64_t k) {
  // Some 64 KiB of weights: small enough to share them out evenly.
  const std::int64_t row_bytes = std::max<std::int64_t>(1, k * std::int64_t{sizeof(T)});
  const std::int64_t grain =
      std::max(rows_of_w, (std::int64_t{1} << 16) / row_bytes / rows_of_w * rows_of_w);
  launch(n, grain, [=, w = w.data(), y = y.data()](std::int64_t first, std::int64_t last) {
    rows<T, X>(x, w, y, m, n, k, first, last);
  });
}

}  // namespace

template <class T>
void few_rows_product(std::span<const T> x, std::span<const T> w, std::span<T> y, std::int64_t m,
                      std::int64_t n, std::int64_t k) {
  core::check(std::ssize(x) == m * k && std::ssize(w) == n * k && std::ssize(y) == m * n,
              "few_rows_product: x is [M, K], w [N, K], y [M, N]");
  if constexpr (std::is_same_v<T, bf16> && multiplies_bf16) {
    return by_rows<T>(x.data(), w, y, m, n, k);
  }
  std::vector<float> widened;
  const float* x_f = nullptr;
  if constexpr (std::is_same_v<T, float>) {
    x_f = x.data();
  } else {
    widened.resize(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      widened[i] = to_float(x[i]);
    x_f = widened.data();
  }
  by_rows<T>(x_f, w, y, m, n, k);
}

template void few_rows_product(std::span<const float>, std::span<const float>, std::span<float>,
                               std::int64_t, std::int64_t, std::int64_t);
template void few_rows_product(std::span<const bf16>, std::span<const bf16>, std::span<bf16>,
                               std::int64_t, std::int64_t, std::int64_t);

}  // namespace finetune::kernels
