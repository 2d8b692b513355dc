// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/panels.hpp"

#include <ATen/Version.h>

#include <cstring>
#include <string>

namespace finetune::kernels::panels {
namespace {

template <int width>
struct Lanes {
  typedef float type __attribute__((vector_size(4 * width)));
};

/// One or two panels of rows by one of columns; its sums stay in registers.
template <int width, int num_panels>
[[gnu::always_inline]] inline void multiply_tile(const Block& x, const float* a, const float* b,
                                                 float* c) {
  using Vector = typename Lanes<width>::type;
  constexpr int vectors = columns / width, height = rows * num_panels;
  Vector sum[height][vectors] = {};
  for (int64_t i = 0; i < x.inner; ++i) {
    Vector right[vectors];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j)
      std::memcpy(&right[j], b + j * width, sizeof(Vector));
#pragma GCC unroll 2
    for (int panel = 0; panel < num_panels; ++panel) {
#pragma GCC unroll 6
      for (int row = 0; row < rows; ++row) {
        const float left = a[panel * x.a_panel + row * x.a_row];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j)
          sum[panel * rows + row][j] += left * right[j];
      }
    }
    a += x.a_step;
    b += columns;
  }
#pragma GCC unroll 12
  for (int row = 0; row < height; ++row) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      float* out = c + row * x.c_row + j * width;
      Vector before = {};
      if (x.adds) std::memcpy(&before, out, sizeof(Vector));
      const Vector after = before + sum[row][j];
      std::memcpy(out, &after, sizeof(Vector));
    }
  }
}

template <int width, int num_panels>
[[gnu::always_inline]] inline void multiply_block(const Block& block) {
  const Block x = block;
  for (int64_t j = 0; j < x.column_panels; ++j) {
    const float* b = x.b + j * x.b_panel;
    float* c = x.c + j * columns;
    int64_t i = 0;
    for (; i + num_panels <= x.row_panels; i += num_panels)
      multiply_tile<width, num_panels>(x, x.a + i * x.a_panel, b, c + i * rows * x.c_row);
    for (; i < x.row_panels; ++i)
      multiply_tile<width, 1>(x, x.a + i * x.a_panel, b, c + i * rows * x.c_row);
  }
}

using Multiply = void (*)(const Block&);

void by_4(const Block& block) {
  multiply_block<4, 1>(block);
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void by_8(const Block& block) {
  multiply_block<8, 1>(block);
}
// Two panels: sums of six registers would wait for each other.
[[gnu::target("avx512f,avx2,fma")]] void by_16(const Block& block) {
  multiply_block<16, 2>(block);
}

Multiply choose() {
  const std::string level = at::get_cpu_capability();
  __builtin_cpu_init();
  if (level == "AVX512" && __builtin_cpu_supports("avx512f")) return by_16;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? by_8 : by_4;
}
#else
Multiply choose() {
  return by_4;
}
#endif

}  // namespace

void multiply(const Block& block) {
  static const Multiply chosen = choose();
  chosen(block);
}

}  // namespace finetune::kernels::panels
