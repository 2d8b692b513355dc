// SPDX-License-Identifier: Apache-2.0
#include "kernels/magnitudes.hpp"

#include <iterator>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"

namespace finetune::kernels {
namespace {

template <class T>
struct RowSquares {
  const T *weight, *mixed, *b;
  const float* low;
  float* squares;
  std::int64_t dim, rank;
  float scale;

  /// `sum(count, term)`: the sum of term(i) for i below count.
  template <class Sum>
  KOKKOS_FORCEINLINE_FUNCTION float of(std::int64_t row, const Sum& sum) const {
    const T *w = weight + row * dim, *mixed_row = mixed + row * rank, *b_row = b + row * rank;
    const float* low_row = low + row * rank;
    const float own = sum(dim, [=](std::int64_t j) {
      const float value = to_float(w[j]);
      return value * value;
    });
    const float between =
        sum(rank, [=](std::int64_t r) { return to_float(mixed_row[r]) * to_float(b_row[r]); });
    const float of_low = sum(rank, [=](std::int64_t r) { return low_row[r] * to_float(b_row[r]); });
    return own + 2 * scale * between + scale * scale * of_low;
  }

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t row = first; row < last; ++row)
      squares[row] = of(
          row, [](std::int64_t count, const auto& term) { return lane_sum<float>(count, term); });
  }
};

template <class T>
struct SquaresOfRow {
  RowSquares<T> by;

  template <class Team>
  KOKKOS_INLINE_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    const float squares = by.of(row, [&](std::int64_t count, const auto& term) {
      return team.template sum<float>(count, term);
    });
    if (team.is_first()) by.squares[row] = squares;
  }
};

template <class T>
struct Factors {
  const float* norms;
  const T* magnitude;
  T* factors;
  const float* d_factors;
  float* d_magnitude;  // or null

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t i = first; i < last; ++i) {
      const bool has_direction = norms[i] > 0;
      factors[i] = round_to<T>(has_direction ? to_float(magnitude[i]) / norms[i] : 1.0f);
      if (d_magnitude != nullptr) d_magnitude[i] = has_direction ? d_factors[i] / norms[i] : 0.0f;
    }
  }
};

}  // namespace

template <class T>
void adapted_row_squares(const AdaptedRows<T>& args, const Place& place) {
  const std::int64_t rows = std::ssize(args.squares);
  if (rows == 0) return;
  const std::int64_t dim = std::ssize(args.weight) / rows, rank = std::ssize(args.b) / rows;
  core::check(std::ssize(args.weight) == rows * dim && std::ssize(args.b) == rows * rank &&
                  args.mixed.size() == args.b.size() && args.low.size() == args.b.size(),
              "magnitudes: W is [F, D], and what B is multiplied with as large as B");
  const RowSquares<T> by{args.weight.data(),
                         args.mixed.data(),
                         args.b.data(),
                         args.low.data(),
                         args.squares.data(),
                         dim,
                         rank,
                         args.scale};
  launch(place, rows, grain_rows(dim), by, Teams<SquaresOfRow<T>>{rows, {by}});
}

template <class T>
void row_factors(const RowFactors<T>& args, const Place& place) {
  const std::size_t rows = args.norms.size();
  core::check(args.magnitude.size() == rows && args.factors.size() == rows &&
                  args.d_factors.size() == args.d_magnitude.size() &&
                  (args.d_factors.empty() || args.d_factors.size() == rows),
              "magnitudes: one of each a row");
  launch(place, std::ssize(args.norms), grain_elements,
         Factors<T>{args.norms.data(), args.magnitude.data(), args.factors.data(),
                    args.d_factors.data(),
                    args.d_magnitude.empty() ? nullptr : args.d_magnitude.data()});
}

template void adapted_row_squares(const AdaptedRows<float>&, const Place&);
template void adapted_row_squares(const AdaptedRows<bf16>&, const Place&);
template void row_factors(const RowFactors<float>&, const Place&);
template void row_factors(const RowFactors<bf16>&, const Place&);

}  // namespace finetune::kernels
