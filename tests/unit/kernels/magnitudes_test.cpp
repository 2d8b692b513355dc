// SPDX-License-Identifier: Apache-2.0
#include "kernels/magnitudes.hpp"

#include "kernels/composed_magnitudes.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::magnitudes_test {
namespace {

template <class T>
class Magnitudes : public ::testing::Test {};
TYPED_TEST_SUITE(Magnitudes, ActivationTypes);

TYPED_TEST(Magnitudes, SquaredNormsAreThoseOfTheSum) {
  using T = TypeParam;
  const std::int64_t F = 37, D = 131, R = 5;
  const at::Tensor w = normal<T>({F, D}, 1), a = normal<T>({R, D}, 2), b = normal<T>({F, R}, 3);
  const at::Tensor a_f = a.to(at::kFloat), b_f = b.to(at::kFloat);
  const at::Tensor mixed = at::mm(w.to(at::kFloat), a_f.t()).to(w.scalar_type());
  const at::Tensor low = at::mm(b_f, at::mm(a_f, a_f.t()));
  const at::Tensor squares = at::empty({F}, at::kFloat);
  adapted_row_squares<T>({.weight = elements<const T>(w),
                          .mixed = elements<const T>(mixed),
                          .b = elements<const T>(b),
                          .low = elements<const float>(low),
                          .scale = 0.5f,
                          .squares = elements<float>(squares)});
  expect_within(squares, composed::adapted_row_squares(w, mixed, b, low, 0.5), 1e-6);
  const at::Tensor sum = w.to(at::kFloat) + 0.5 * at::mm(b_f, a_f);
  expect_within(squares, at::linalg_vector_norm(sum, 2, 1).square(), tolerance<T>());
}

TYPED_TEST(Magnitudes, FactorsOfARowWithoutADirectionAreOneAndItsGradientZero) {
  using T = TypeParam;
  const std::int64_t F = 37;
  at::Tensor norms = normal<float>({F}, 1).abs();
  norms[3] = 0;
  const at::Tensor magnitude = normal<T>({F}, 2), d_factors = normal<float>({F}, 3);
  const at::Tensor factors = at::empty({F}, magnitude.options());
  const at::Tensor d_magnitude = at::empty({F}, at::kFloat);
  RowFactors<T> args{.norms = elements<const float>(norms),
                     .magnitude = elements<const T>(magnitude),
                     .factors = elements<T>(factors)};
  row_factors(args);
  EXPECT_TRUE(at::equal(factors, composed::row_factors(norms, magnitude)));
  EXPECT_EQ(factors[3].template item<float>(), 1);
  args.d_factors = elements<const float>(d_factors);
  args.d_magnitude = elements<float>(d_magnitude);
  factors.zero_();
  row_factors(args);
  EXPECT_TRUE(at::equal(factors, composed::row_factors(norms, magnitude)));
  EXPECT_TRUE(at::equal(d_magnitude, composed::magnitude_gradient(norms, d_factors)));
  EXPECT_EQ(d_magnitude[3].template item<float>(), 0);
}

TEST(AdaptedRows, OfSizesThatDoNotFitAreRefused) {
  const at::Tensor numbers = at::zeros({12}, at::kFloat), rows = at::zeros({3}, at::kFloat);
  AdaptedRows<float> args{.weight = elements<const float>(numbers),
                          .mixed = elements<const float>(rows),
                          .b = elements<const float>(numbers),
                          .low = elements<const float>(numbers),
                          .scale = 1,
                          .squares = elements<float>(rows)};
  EXPECT_ANY_THROW(adapted_row_squares(args));
}

}  // namespace
}  // namespace finetune::kernels::test::magnitudes_test
