#pragma once
// SPDX-License-Identifier: Apache-2.0
// The parts of an Adafactor step, put together from ATen operations; on any device.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kernels/rounding.hpp"

namespace finetune::kernels::composed {

/// Sums of squares that do not depend on the order, the pieces or the ranks they are added in: so
/// many integers per row and per column, of multiples of 2^32, 2^-12, 2^-56 and 2^-100.
inline constexpr std::int64_t num_factor_bins = 4;
/// Squares in one sum, so that no integer overflows.
inline constexpr std::int64_t most_factor_terms = (std::int64_t{1} << 19) - 1;

/// Elements [first, first + N) of matrices of one size that follow each other, whatever N is; what
/// is no matrix is one of width 1.
struct MatrixRun {
  std::int64_t first = 0;
  std::int64_t height = 1, width = 1;  ///< of each
};

/// Adds the squares of scale * gradient (fp32 [N]) to the sums of all matrices' rows, int64
/// [rows, bins], and of their columns, int64 [columns, bins] or undefined. Each square is rounded
/// to a multiple of 2^-100 on its own; elements of 2^38 and more count as a little less than that.
void add_factor_squares_(at::Tensor& of_rows, at::Tensor& of_columns, const at::Tensor& gradient,
                         double scale, const MatrixRun& run);

/// factor fp32 [K] becomes decay * factor + (1 - decay) * (mean + epsilon), of sums int64 [K, bins]
/// of `count` squares each.
void move_factor_(at::Tensor& factor, const at::Tensor& sums, std::int64_t count, double decay,
                  double epsilon);

/// What rows are multiplied by: 1 / sqrt(factor / mean of the factors), fp32 [K] -> [K], of K /
/// height matrices. The mean is of each one's factors [first, first + count), the same on any
/// number of threads.
at::Tensor row_weights(const at::Tensor& factor, std::int64_t height, std::int64_t first,
                       std::int64_t count);

/// scale * gradient * by_row[i] * by_column[j], fp32 [N]; by_column is undefined where of_columns
/// is.
at::Tensor adafactor_direction(const at::Tensor& gradient, const at::Tensor& by_row,
                               const at::Tensor& by_column, double scale, const MatrixRun& run);

/// max(1, root mean square / threshold) of each of M directions, fp32 [M], from the sums of their
/// squares as add_exact_squares_ makes them, int64 [M, SquareBins::num_values], and fp64 [M]
/// counts.
at::Tensor clip_divisors(const at::Tensor& squares, const at::Tensor& counts, double threshold);

struct AdafactorNumbers {
  double lr, weight_decay;
  std::optional<RoundingKey> rounding = {};  ///< of what is bf16; without: to nearest
  std::int64_t index = 0;                    ///< of the first element, over the whole model
};

/// weight = (1 - lr weight_decay) weight - lr * direction / divisor, in place, all [N]; divisors
/// fp32 [M] of M matrices, N / M elements each. Each operation is rounded as written: any cut into
/// calls gives identical bits.
void adafactor_step_(at::Tensor& weight, const at::Tensor& direction, const at::Tensor& divisors,
                     const AdafactorNumbers& numbers);

}  // namespace finetune::kernels::composed
