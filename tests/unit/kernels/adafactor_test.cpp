// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/composed_adafactor.hpp"

namespace finetune::kernels::adafactor_test {
namespace {

using composed::MatrixRun;
using composed::num_factor_bins;

constexpr std::int64_t height = 23, width = 17;

/// Of 50 orders of magnitude.
at::Tensor gradient() {
  const at::Tensor i = at::arange(height * width, at::kFloat);
  return at::sin(i.mul(7)).mul(at::pow(10, at::sin(i.mul(3)).mul(12).sub(6))).to(at::kFloat);
}

struct Sums {
  at::Tensor rows = at::zeros({height, num_factor_bins}, at::kLong);
  at::Tensor columns = at::zeros({width, num_factor_bins}, at::kLong);

  void add(const at::Tensor& values, std::int64_t first, std::int64_t count, double scale = 1) {
    composed::add_factor_squares_(rows, columns, values.narrow(0, first, count), scale,
                                  MatrixRun{first, height, width});
  }
  bool operator==(const Sums& other) const {
    return rows.equal(other.rows) && columns.equal(other.columns);
  }
};

TEST(AdafactorSums, AreTheSameHoweverTheMatrixIsCut) {
  const at::Tensor values = gradient();
  Sums whole;
  whole.add(values, 0, height * width);
  for (const std::int64_t piece : {1, 5, 17, 40, 390}) {
    Sums cut;
    // The last first: integers have no order.
    for (std::int64_t first = (height * width - 1) / piece * piece; first >= 0; first -= piece)
      cut.add(values, first, std::min(piece, height * width - first));
    EXPECT_TRUE(cut == whole) << piece;
  }
}

/// Small matrices that follow each other, as a convolution has them, give what each gives alone.
TEST(AdafactorSums, OfManyMatricesAreThoseOfEach) {
  constexpr std::int64_t num = 9, high = 3, wide = 5, size = high * wide;
  const at::Tensor values = gradient().narrow(0, 0, num * size);
  at::Tensor rows = at::zeros({num * high, num_factor_bins}, at::kLong);
  at::Tensor columns = at::zeros({num * wide, num_factor_bins}, at::kLong);
  for (std::int64_t i = 0; i < num; ++i) {
    at::Tensor own = rows.narrow(0, i * high, high), across = columns.narrow(0, i * wide, wide);
    composed::add_factor_squares_(own, across, values.narrow(0, i * size, size), 0.5,
                                  {0, high, wide});
  }
  const at::Tensor by_row = at::rand({num * high}).add_(0.5);
  const at::Tensor by_column = at::rand({num * wide}).add_(0.5);
  const at::Tensor direction = by_row.view({num, high, 1}) * by_column.view({num, 1, wide}) *
                               values.mul(0.5).view({num, high, wide});
  for (const std::int64_t piece : {1, 4, 5, 7, 15, 31, 46, 135}) {
    at::Tensor cut_rows = at::zeros_like(rows), cut_columns = at::zeros_like(columns);
    for (std::int64_t first = 0; first < num * size; first += piece) {
      const at::Tensor part = values.narrow(0, first, std::min(piece, num * size - first));
      const MatrixRun run{first, high, wide};
      composed::add_factor_squares_(cut_rows, cut_columns, part, 0.5, run);
      EXPECT_TRUE(composed::adafactor_direction(part, by_row, by_column, 0.5, run)
                      .equal(direction.view(-1).narrow(0, first, part.numel())));
    }
    EXPECT_TRUE(cut_rows.equal(rows)) << piece;
    EXPECT_TRUE(cut_columns.equal(columns)) << piece;
  }
  const at::Tensor weights = composed::row_weights(by_row, high, 1, 2);
  for (std::int64_t i = 0; i < num; ++i)
    EXPECT_TRUE(weights.narrow(0, i * high, high)
                    .equal(composed::row_weights(by_row.narrow(0, i * high, high), high, 1, 2)));
}

TEST(AdafactorSums, AreThoseOfSquares) {
  const at::Tensor values = gradient();
  Sums sums;
  sums.add(values, 0, height * width, 0.25);
  const at::Tensor squares = values.mul(0.25).to(at::kDouble).square().view({height, width});
  at::Tensor rows = at::zeros({height}), columns = at::zeros({width});
  composed::move_factor_(rows, sums.rows, width, 0, 1e-30);
  composed::move_factor_(columns, sums.columns, height, 0, 1e-30);
  EXPECT_TRUE(at::allclose(rows, squares.mean(1).to(at::kFloat), 1e-6, 0));
  EXPECT_TRUE(at::allclose(columns, squares.mean(0).to(at::kFloat), 1e-6, 0));
  // Half of it is forgotten.
  composed::move_factor_(rows, at::zeros_like(sums.rows), width, 0.5, 1e-30);
  EXPECT_TRUE(at::allclose(rows, squares.mean(1).mul(0.5).to(at::kFloat), 1e-6, 0));
}

TEST(AdafactorSums, CountWhatIsTooLargeAsTheLargest) {
  Sums sums;
  sums.add(at::full({height * width}, 3e38f), 0, height * width);
  EXPECT_GE(sums.columns.min().item<std::int64_t>(), 0);
  at::Tensor rows = at::zeros({height});
  composed::move_factor_(rows, sums.rows, width, 0, 1e-30);
  EXPECT_NEAR(rows.min().item<float>() / 0x1p76, 1, 1e-6);
}

TEST(AdafactorDirection, IsTheSameHoweverTheMatrixIsCut) {
  const at::Tensor values = gradient();
  const at::Tensor by_row = at::rand({height}).add_(0.5), by_column = at::rand({width}).add_(0.5);
  const at::Tensor whole =
      composed::adafactor_direction(values, by_row, by_column, 0.5, {0, height, width});
  const at::Tensor expected =
      by_row.view({height, 1}) * by_column * values.mul(0.5).view({-1, width});
  EXPECT_TRUE(whole.view({height, width}).equal(expected));
  for (std::int64_t first = 0; first < height * width; first += 40) {
    const std::int64_t count = std::min<std::int64_t>(40, height * width - first);
    EXPECT_TRUE(composed::adafactor_direction(values.narrow(0, first, count), by_row, by_column,
                                              0.5, {first, height, width})
                    .equal(whole.narrow(0, first, count)));
  }
}

}  // namespace
}  // namespace finetune::kernels::adafactor_test
