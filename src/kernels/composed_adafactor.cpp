// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_adafactor.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

#include "core/error.hpp"
#include "kernels/detail/composed_rounding.hpp"
#include "kernels/exact_squares.hpp"

namespace finetune::kernels::composed {
namespace {

constexpr double factor_units[num_factor_bins] = {0x1p32, 0x1p-12, 0x1p-56, 0x1p-100};

/// Elements at a time: temporaries are about four numbers of 8 bytes of each, and on a host they
/// stay in the caches.
std::int64_t elements_at_a_time(const at::Tensor& like) {
  return std::int64_t{1} << (like.is_cpu() ? 16 : 21);
}

/// A rectangle of whole rows, or a part of one row.
struct Rectangle {
  std::int64_t offset;  ///< in the run
  std::int64_t row, num_rows, column, num_columns;
  std::int64_t count() const { return num_rows * num_columns; }
};

/// Calls f with the rectangles that a run of `count` elements is made of, in their order.
template <typename F>
void for_each_rectangle(const MatrixRun& run, std::int64_t count, std::int64_t most, const F& f) {
  const std::int64_t most_rows = std::max<std::int64_t>(1, most / run.width);
  std::int64_t done = 0;
  while (done < count) {
    const std::int64_t at = run.first + done, row = at / run.width, column = at % run.width;
    const std::int64_t rows = std::min(most_rows, (count - done) / run.width);
    Rectangle next{done, row, rows, 0, run.width};
    if (column > 0 || rows == 0)
      next = {done, row, 1, column, std::min(run.width - column, count - done)};
    f(next);
    done += next.count();
  }
}

at::Tensor scaled(const at::Tensor& gradient, double scale) {
  return scale == 1.0 ? gradient : gradient.mul(scale);
}

/// In fp64, one after the other: partial sums would depend on the number of threads.
double mean_on_host(const at::Tensor& values) {
  const at::Tensor whole = values.contiguous();
  double sum = 0;
  for (const float value : std::span(whole.const_data_ptr<float>(), whole.numel()))
    sum += static_cast<double>(value);
  return sum / static_cast<double>(whole.numel());
}

}  // namespace

void add_factor_squares_(at::Tensor& of_rows, at::Tensor& of_columns, const at::Tensor& gradient,
                         double scale, const MatrixRun& run) {
  // The largest float below it, whose square still fits in the first bin.
  constexpr double largest = SquareBins::limit * (1 - 0x1p-24);
  for_each_rectangle(run, gradient.numel(), elements_at_a_time(gradient), [&](const Rectangle& in) {
    at::Tensor rest = scaled(gradient.narrow(0, in.offset, in.count()), scale).to(at::kDouble);
    rest = rest.clamp(-largest, largest).square_().view({in.num_rows, in.num_columns});
    for (std::int64_t bin = 0; bin < num_factor_bins; ++bin) {
      const double unit = factor_units[bin];
      at::Tensor units = rest.mul(1 / unit);
      units = bin + 1 < num_factor_bins ? units.floor_() : units.round_();
      rest.sub_(units, unit);
      const at::Tensor whole = units.to(at::kLong);
      of_rows.narrow(0, in.row, in.num_rows).select(1, bin).add_(whole.sum(1));
      if (of_columns.defined())
        of_columns.narrow(0, in.column, in.num_columns).select(1, bin).add_(whole.sum(0));
    }
  });
}

void move_factor_(at::Tensor& factor, const at::Tensor& sums, std::int64_t count, double decay,
                  double epsilon) {
  core::check(count <= most_factor_terms, "no sum of squares overflows");
  at::Tensor mean = at::zeros({sums.size(0)}, sums.options().dtype(at::kDouble));
  for (std::int64_t bin = num_factor_bins; bin-- > 0;)
    mean.add_(sums.select(1, bin).to(at::kDouble).mul_(factor_units[bin]));
  mean.div_(static_cast<double>(count)).add_(epsilon);
  factor.mul_(decay).add_(mean.to(at::kFloat).mul_(1 - decay));
}

at::Tensor row_weights(const at::Tensor& factor, std::int64_t first, std::int64_t count) {
  const at::Tensor own = factor.narrow(0, first, count);
  if (factor.is_cpu()) return factor.div(static_cast<float>(mean_on_host(own))).rsqrt_();
  return factor.div(own.mean(at::kDouble).to(at::kFloat)).rsqrt_();
}

at::Tensor adafactor_direction(const at::Tensor& gradient, const at::Tensor& by_row,
                               const at::Tensor& by_column, double scale, const MatrixRun& run) {
  at::Tensor direction = at::empty_like(gradient);
  for_each_rectangle(run, gradient.numel(), elements_at_a_time(gradient), [&](const Rectangle& in) {
    at::Tensor by = by_row.narrow(0, in.row, in.num_rows).view({in.num_rows, 1});
    if (by_column.defined()) by = by.mul(by_column.narrow(0, in.column, in.num_columns));
    const at::Tensor own = scaled(gradient.narrow(0, in.offset, in.count()), scale);
    at::Tensor out = direction.narrow(0, in.offset, in.count());
    out.view({in.num_rows, in.num_columns}).copy_(by.mul(own.view({in.num_rows, in.num_columns})));
  });
  return direction;
}

at::Tensor clip_divisors(const at::Tensor& squares, const at::Tensor& counts, double threshold) {
  constexpr std::int64_t num = SquareBins::num_bins;
  constexpr double split = std::int64_t{1} << SquareBins::split_bits;
  at::Tensor sum = at::zeros_like(counts);
  for (std::int64_t bin = num; bin-- > 0;) {
    at::Tensor units = squares.select(1, bin).to(at::kDouble).mul_(split);
    units.add_(squares.select(1, num + bin).to(at::kDouble));
    sum.add_(units.mul_(SquareBins::units[bin]));
  }
  return sum.div_(counts).sqrt_().div_(threshold).clamp_min_(1).to(at::kFloat);
}

void adafactor_step_(at::Tensor& weight, const at::Tensor& direction, const at::Tensor& divisor,
                     const AdafactorNumbers& numbers) {
  // The same tensor where it is fp32 already.
  at::Tensor w = weight.to(at::kFloat);
  w.mul_(1.0 - numbers.lr * numbers.weight_decay);
  w.sub_(direction.div(divisor).mul_(numbers.lr));
  if (weight.is_same(w)) return;
  StoreRounded(numbers.rounding, numbers.index, weight.size(0), weight)(weight, w,
                                                                        RandomBits::weight);
}

}  // namespace finetune::kernels::composed
