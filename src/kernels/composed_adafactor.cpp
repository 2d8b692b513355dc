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

/// Whole matrices, whole rows of one, or a part of one row.
struct Rectangle {
  std::int64_t offset;  ///< in the run
  std::int64_t num_matrices;
  std::int64_t row, num_rows;  ///< counted over all matrices; of each
  std::int64_t column, num_columns;
  std::int64_t first_of_columns;  ///< counted over all matrices

  std::int64_t count() const { return num_matrices * num_rows * num_columns; }
  at::Tensor rows_of(const at::Tensor& all) const {
    return all.narrow(0, row, num_matrices * num_rows);
  }
  at::Tensor columns_of(const at::Tensor& all) const {
    return all.narrow(0, first_of_columns, num_matrices * num_columns);
  }
  at::Tensor shaped(const at::Tensor& values) const {
    return values.view({num_matrices, num_rows, num_columns});
  }
};

/// The first of at most `most` elements, or one row, of the `left` elements that begin `done` after
/// the run does.
Rectangle next_rectangle(const MatrixRun& run, std::int64_t done, std::int64_t left,
                         std::int64_t most) {
  const std::int64_t size = run.height * run.width, at = run.first + done;
  const std::int64_t row = at / run.width, column = at % run.width, matrix = at / size;
  Rectangle next{done, 1, row, 1, column, run.width, matrix * run.width + column};
  if (column > 0 || left < run.width) {
    next.num_columns = std::min(run.width - column, left);
  } else if (at % size == 0 && std::min(left, most) >= size) {
    next.num_matrices = std::min(left, most) / size;
    next.num_rows = run.height;
  } else {
    next.num_rows = std::min({std::max<std::int64_t>(1, most / run.width), left / run.width,
                              run.height - row % run.height});
  }
  return next;
}

/// Calls f with the rectangles that a run of `count` elements is made of, in their order.
template <typename F>
void for_each_rectangle(const MatrixRun& run, std::int64_t count, std::int64_t most, const F& f) {
  std::int64_t done = 0;
  while (done < count) {
    const Rectangle next = next_rectangle(run, done, count - done, most);
    f(next);
    done += next.count();
  }
}

at::Tensor scaled(const at::Tensor& gradient, double scale) {
  return scale == 1.0 ? gradient : gradient.mul(scale);
}

/// Of each row, fp32 [N, K] -> [N, 1]: in fp64, one after the other, since partial sums would
/// depend on the number of threads.
at::Tensor means_on_host(const at::Tensor& values) {
  const at::Tensor whole = values.contiguous();
  at::Tensor means = at::empty({values.size(0), 1}, values.options());
  const auto count = static_cast<std::size_t>(values.size(1));
  const float* next = whole.const_data_ptr<float>();
  for (float& mean : std::span(means.data_ptr<float>(), static_cast<std::size_t>(means.numel()))) {
    double sum = 0;
    for (const float value : std::span(next, count))
      sum += static_cast<double>(value);
    mean = static_cast<float>(sum / static_cast<double>(count));
    next += count;
  }
  return means;
}

}  // namespace

void add_factor_squares_(at::Tensor& of_rows, at::Tensor& of_columns, const at::Tensor& gradient,
                         double scale, const MatrixRun& run) {
  // The largest float below it, whose square still fits in the first bin.
  constexpr double largest = SquareBins::limit * (1 - 0x1p-24);
  for_each_rectangle(run, gradient.numel(), elements_at_a_time(gradient), [&](const Rectangle& in) {
    at::Tensor rest = scaled(gradient.narrow(0, in.offset, in.count()), scale).to(at::kDouble);
    rest = in.shaped(rest.clamp(-largest, largest).square_());
    for (std::int64_t bin = 0; bin < num_factor_bins; ++bin) {
      const double unit = factor_units[bin];
      at::Tensor units = rest.mul(1 / unit);
      units = bin + 1 < num_factor_bins ? units.floor_() : units.round_();
      rest.sub_(units, unit);
      const at::Tensor whole = units.to(at::kLong);
      in.rows_of(of_rows).select(1, bin).add_(whole.sum(2).view(-1));
      if (of_columns.defined())
        in.columns_of(of_columns).select(1, bin).add_(whole.sum(1).view(-1));
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

at::Tensor row_weights(const at::Tensor& factor, std::int64_t height, std::int64_t first,
                       std::int64_t count) {
  const at::Tensor of_matrices = factor.view({-1, height});
  const at::Tensor own = of_matrices.narrow(1, first, count);
  const at::Tensor means =
      factor.is_cpu() ? means_on_host(own) : own.mean(1, true, at::kDouble).to(at::kFloat);
  return of_matrices.div(means).rsqrt_().view(-1);
}

at::Tensor adafactor_direction(const at::Tensor& gradient, const at::Tensor& by_row,
                               const at::Tensor& by_column, double scale, const MatrixRun& run) {
  at::Tensor direction = at::empty_like(gradient);
  for_each_rectangle(run, gradient.numel(), elements_at_a_time(gradient), [&](const Rectangle& in) {
    at::Tensor by = in.rows_of(by_row).view({in.num_matrices, in.num_rows, 1});
    if (by_column.defined())
      by = by.mul(in.columns_of(by_column).view({in.num_matrices, 1, in.num_columns}));
    const at::Tensor own = scaled(gradient.narrow(0, in.offset, in.count()), scale);
    in.shaped(direction.narrow(0, in.offset, in.count())).copy_(by.mul(in.shaped(own)));
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

void adafactor_step_(at::Tensor& weight, const at::Tensor& direction, const at::Tensor& divisors,
                     const AdafactorNumbers& numbers) {
  // The same tensor where it is fp32 already.
  at::Tensor w = weight.to(at::kFloat);
  w.mul_(1.0 - numbers.lr * numbers.weight_decay);
  const at::Tensor by_matrix = direction.view({divisors.numel(), -1});
  w.sub_(by_matrix.div(divisors.view({-1, 1})).mul_(numbers.lr).view(-1));
  if (weight.is_same(w)) return;
  StoreRounded(numbers.rounding, numbers.index, weight.size(0), weight)(weight, w,
                                                                        RandomBits::weight);
}

}  // namespace finetune::kernels::composed
