// SPDX-License-Identifier: Apache-2.0
#include "kernels/product.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "kernels/detail/panels.hpp"

namespace finetune::kernels {
namespace {

using panels::round_up;
using std::int64_t;

// A block of the left side stays in a processor's second cache, a panel of the right side in its
// first.
constexpr int64_t left_rows = 120, inner_length = 256, right_columns = 384;
/// Rows whose sums wait until the inner dimension is through: the more, the fewer times a panel of
/// the right side is packed.
constexpr int64_t sum_rows = 480;

static_assert(product_scratch_bytes ==
              sizeof(float) * (left_rows * inner_length + inner_length * right_columns +
                               sum_rows * right_columns));

/// What a thread has for itself, once for all products.
struct ProductScratch {
  std::vector<float> left = std::vector<float>(left_rows * inner_length + panels::slack);
  std::vector<float> right = std::vector<float>(inner_length * right_columns + panels::slack);
  std::vector<float> sums = std::vector<float>(sum_rows * right_columns);
};

struct Rectangle {
  int64_t row, num_rows, column, num_columns;
};

template <class T>
void round_rows(const float* sums, int64_t of_sum, const Matrix<T>& c, const Rectangle& part,
                Into into) {
  for (int64_t row = 0; row < part.num_rows; ++row) {
    const float* from = sums + row * of_sum;
    T* out = c.data + (part.row + row) * c.of_row + part.column;
    if (into == Into::sum) {
#pragma GCC ivdep
      for (int64_t i = 0; i < part.num_columns; ++i)
        out[i] = round_to<T>(to_float(out[i]) + from[i]);
    } else {
#pragma GCC ivdep
      for (int64_t i = 0; i < part.num_columns; ++i)
        out[i] = round_to<T>(from[i]);
    }
  }
}

/// At most sum_rows by right_columns of c.
template <class T>
void multiply_part(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c,
                   const Rectangle& part, Into into, ProductScratch& scratch) {
  const int64_t of_sum = round_up(part.num_columns, panels::columns), inner = a.columns;
  for (int64_t first = 0; first < inner; first += inner_length) {
    const int64_t length = std::min(inner_length, inner - first);
    panels::pack<panels::columns>(b.data + first * b.of_row + part.column * b.of_column,
                                  part.num_columns, length, b.of_column, b.of_row,
                                  scratch.right.data());
    for (int64_t row = 0; row < part.num_rows; row += left_rows) {
      const int64_t count = std::min(left_rows, part.num_rows - row);
      panels::pack<panels::rows>(a.data + (part.row + row) * a.of_row + first * a.of_column, count,
                                 length, a.of_row, a.of_column, scratch.left.data());
      panels::multiply({.row_panels = round_up(count, panels::rows) / panels::rows,
                        .column_panels = of_sum / panels::columns,
                        .inner = length,
                        .a = scratch.left.data(),
                        .a_panel = panels::rows * length,
                        .a_row = 1,
                        .a_step = panels::rows,
                        .b = scratch.right.data(),
                        .b_panel = panels::columns * length,
                        .c = scratch.sums.data() + row * of_sum,
                        .c_row = of_sum,
                        .adds = first > 0});
    }
  }
  if (inner == 0) std::fill(scratch.sums.begin(), scratch.sums.end(), 0.0f);
  round_rows(scratch.sums.data(), of_sum, c, part, into);
}

template <class T>
void multiply_rectangle(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c,
                        const Rectangle& all, Into into) {
  static_assert(sum_rows % left_rows == 0 && left_rows % panels::rows == 0 &&
                right_columns % panels::columns == 0);
  thread_local ProductScratch scratch;
  for (int64_t row = 0; row < all.num_rows; row += sum_rows)
    for (int64_t column = 0; column < all.num_columns; column += right_columns)
      multiply_part(a, b, c,
                    {all.row + row, std::min(sum_rows, all.num_rows - row), all.column + column,
                     std::min(right_columns, all.num_columns - column)},
                    into, scratch);
}

/// Into how many pieces each side of the result is cut: what a thread packs is then least.
struct Cut {
  int64_t of_rows = 1, of_columns = 1;
};

Cut cut(int64_t num_rows, int64_t num_columns, int64_t threads) {
  Cut best;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t of_rows = 1; of_rows <= threads; ++of_rows) {
    const int64_t of_columns = threads / of_rows;
    const int64_t height = round_up((num_rows + of_rows - 1) / of_rows, panels::rows);
    const int64_t width = round_up((num_columns + of_columns - 1) / of_columns, panels::columns);
    // A multiplication takes a fraction of what packing an element does.
    const int64_t cost = height * width / 16 + height + width;
    if (cost >= least) continue;
    least = cost;
    best = {of_rows, of_columns};
  }
  return best;
}

}  // namespace

template <class T>
void product(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c, Into into) {
  core::check(a.columns == b.rows && a.rows == c.rows && b.columns == c.columns,
              "product: the shapes fit each other");
  core::check(c.of_column == 1, "product: the result's columns are neighbours");
  // Less is done before other threads have started.
  constexpr int64_t least_work = int64_t{1} << 18;
  const bool is_small = c.rows * c.columns * a.columns < least_work || at::in_parallel_region();
  const Cut pieces = cut(c.rows, c.columns, is_small ? 1 : at::get_num_threads());
  const int64_t height = round_up((c.rows + pieces.of_rows - 1) / pieces.of_rows, panels::rows);
  const int64_t width =
      round_up((c.columns + pieces.of_columns - 1) / pieces.of_columns, panels::columns);
  at::parallel_for(0, pieces.of_rows * pieces.of_columns, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i / pieces.of_columns * height, column = i % pieces.of_columns * width;
      multiply_rectangle(
          a, b, c,
          {row, std::min(height, c.rows - row), column, std::min(width, c.columns - column)}, into);
    }
  });
}

template void product<float>(const Matrix<const float>&, const Matrix<const float>&,
                             const Matrix<float>&, Into);
template void product<bf16>(const Matrix<const bf16>&, const Matrix<const bf16>&,
                            const Matrix<bf16>&, Into);
template void product<f16>(const Matrix<const f16>&, const Matrix<const f16>&, const Matrix<f16>&,
                           Into);

}  // namespace finetune::kernels
