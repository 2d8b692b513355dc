// SPDX-License-Identifier: Apache-2.0
#include "kernels/few_rows.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/host_threads.hpp"

#ifdef __AVX512BF16__
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

// Rows of weights and of x whose products are summed at once: as many sums as there are registers.
constexpr std::int64_t rows_of_w = 4, rows_of_x = 4;

Floats load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

/// The upper half of a float.
Floats load(const bf16* from) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  Floats values;
  std::memcpy(&values, &words, sizeof values);
  return values;
}

/// In an order that stays, whatever a processor adds up at once.
float sum_of(const Floats& values) {
  float parts[lanes];
  std::memcpy(parts, &values, sizeof parts);
  for (std::int64_t width = lanes / 2; width > 0; width /= 2)
    for (std::int64_t i = 0; i < width; ++i)
      parts[i] += parts[i + width];
  return parts[0];
}

/// Of the fp32 sums of products of so many neighbours at once.
template <class T, class X>
struct Lanes {
  static constexpr std::int64_t width = lanes;
  static auto of(const X* from) { return load(from); }
  static auto of_weights(const T* from) { return load(from); }
  static void add(Floats& sum, const Floats& a, const Floats& b) { sum += a * b; }
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
  for (std::int64_t i = 0; i < whole; i += Of::width) {
    decltype(Of::of(x)) of_x[num_x];
    for (std::int64_t b = 0; b < num_x; ++b)
      of_x[b] = Of::of(x + b * k + i);
    for (std::int64_t a = 0; a < num_w; ++a) {
      const auto of_w = Of::of_weights(w + a * k + i);
      for (std::int64_t b = 0; b < num_x; ++b)
        Of::add(sums[a][b], of_w, of_x[b]);
    }
  }
  for (std::int64_t a = 0; a < num_w; ++a) {
    for (std::int64_t b = 0; b < num_x; ++b) {
      float sum = sum_of(sums[a][b]);
      for (std::int64_t i = whole; i < k; ++i)
        sum += to_float(w[a * k + i]) * to_float(x[b * k + i]);
      y[b * n + a] = round_to<T>(sum);
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

bool is_quick_with_few_rows(bool is_narrow, std::int64_t m) {
  // Beyond that the time goes into widening what a library multiplies as it is.
  constexpr std::int64_t most_widened = 8;
  return m <= (is_narrow && !multiplies_bf16 ? most_widened : most_few_rows);
}

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
