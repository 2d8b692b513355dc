#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tiles of 64 tokens of one head, and their products.
//
// libtorch's fused kernel for the CPU has its small products from a library that, without AMX,
// widens bf16 to fp32 first. These run on the processor's own bf16 instructions, through the same
// interface of libtorch that its kernel uses where there is AMX.
//
// Each product is C = A B with B "in pairs": two neighbouring rows of B interleaved, element by
// element, as the instructions want it. Tiles at the end of a sample are filled up with zeros, so
// that few shapes of products occur and no length is special.

#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <new>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/attention.hpp"
#include "kernels/detail/arithmetic.hpp"

namespace finetune::kernels::attention_tiles {

inline constexpr std::int64_t tile = 64;
/// Key tiles whose scores a tile of queries has at one time.
inline constexpr std::int64_t tiles_at_once = 8;
inline constexpr std::int64_t most_elements = std::int64_t{1} << 20;
inline constexpr float infinity = std::numeric_limits<float>::infinity();

using std::int64_t;

/// C [m, n] (+)= A [m, k] B [k, n], all dense, B in pairs.
inline void multiply(int64_t m, int64_t n, int64_t k, const bf16* a, const bf16* b, float* c,
                     int64_t ld_c, bool adds) {
  const auto* left = reinterpret_cast<const c10::BFloat16*>(a);
  const auto* right = reinterpret_cast<const c10::BFloat16*>(b);
  at::native::cpublas::brgemm(m, n, k, k, n, ld_c, adds, left, right, c, /*is_vnni=*/true);
}

#if defined(__x86_64__)
/// Its own products in bf16: with them libtorch's kernel runs at full rate.
inline bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned extended_features = 7, amx_bf16 = 1u << 22;
  return __get_cpuid_count(extended_features, 0, &a, &b, &c, &d) != 0 && (d & amx_bf16) != 0;
}
#endif

/// Whether such products are there and mean what is said above.
inline bool probe() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512bf16") || has_amx()) return false;
  constexpr int64_t m = 2, n = 16, k = 32;
  bf16 a[m * k], b[k * n];
  float expected[m * n] = {}, c[m * n] = {};
  for (int64_t i = 0; i < m * k; ++i)
    a[i] = round_to<bf16>(static_cast<float>(i % 7 - 3));
  for (int64_t row = 0; row < k; ++row) {
    for (int64_t col = 0; col < n; ++col) {
      const auto value = static_cast<float>((row * 5 + col * 3) % 11 - 5);
      b[(row / 2 * n + col) * 2 + row % 2] = round_to<bf16>(value);
      for (int64_t i = 0; i < m; ++i)
        expected[i * n + col] += to_float(a[i * k + row]) * value;
    }
  }
  try {
    multiply(m, n, k, a, b, c, n, false);
    at::native::cpublas::brgemm_release();
  } catch (const std::exception&) {
    return false;
  }
  return std::equal(c, c + m * n, expected);  // small integers: exact
#else
  return false;
#endif
}

inline int64_t num_tiles(const CausalShape& shape) {
  return (shape.length + tile - 1) / tile;
}

/// A tile of one head, dense, rows behind the sample's end zero.
inline void load(const Heads<const bf16>& from, int64_t sample, int64_t head, int64_t i_tile,
                 const CausalShape& shape, bf16* out) {
  const int64_t count = std::min(tile, shape.length - i_tile * tile), k = shape.head_size;
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(out + i * k, from.row(sample, head, i_tile * tile + i),
                static_cast<std::size_t>(k) * sizeof(bf16));
  std::memset(out + count * k, 0, static_cast<std::size_t>((tile - count) * k) * sizeof(bf16));
}

/// x [rows, cols] in pairs of rows.
inline void pair_rows(const bf16* x, int64_t rows, int64_t cols, bf16* out) {
  for (int64_t row = 0; row < rows; row += 2) {
    const bf16 *upper = x + row * cols, *lower = upper + cols;
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) {
      out[row * cols + 2 * i] = upper[i];
      out[row * cols + 2 * i + 1] = lower[i];
    }
  }
}

/// out [cols, rows] = x [rows, cols], by blocks that stay near; rows are a multiple of 16.
template <class T>
void transpose(const T* x, int64_t rows, int64_t cols, T* out) {
  constexpr int64_t block = 16;
  for (int64_t first = 0; first < cols; first += block) {
    const int64_t last = std::min(first + block, cols);
    for (int64_t row = 0; row < rows; row += block) {
      for (int64_t col = first; col < last; ++col) {
#pragma GCC ivdep
        for (int64_t i = row; i < row + block; ++i)
          out[col * rows + i] = x[i * cols + col];
      }
    }
  }
}

/// The transpose [cols, tile] of x [tile, cols] in pairs: pairs of a row's elements move together.
inline void pair_columns(const bf16* x, int64_t cols, bf16* out) {
  transpose(reinterpret_cast<const std::uint32_t*>(x), tile, cols / 2,
            reinterpret_cast<std::uint32_t*>(out));
}

/// Memory for `count` elements that begins at a cache line.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t count)
      : memory_(static_cast<T*>(
            ::operator new (static_cast<std::size_t>(count) * sizeof(T), std::align_val_t{64}))) {}
  ~Buffer() { ::operator delete (memory_, std::align_val_t{64}); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* operator+(int64_t offset) const { return memory_ + offset; }

 private:
  T* memory_;
};

inline float scale_of(const CausalShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_size)));
}

}  // namespace finetune::kernels::attention_tiles
