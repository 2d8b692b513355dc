// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm.hpp"

#include "kernels/composed.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::rms_norm_test {
namespace {

constexpr double epsilon = 1e-5;

struct Normalised {
  at::Tensor y, rstd, h;
};

template <class T>
Normalised normalise(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& residual,
                     float weight_offset = 0) {
  Normalised out{at::empty_like(x), at::empty({x.size(0)}, at::kFloat),
                 residual.defined() ? at::empty_like(x) : at::Tensor()};
  rms_norm(RmsNormForward<T>{.x = elements<T>(x),
                             .residual = elements<T>(residual),
                             .weight = elements<T>(weight),
                             .epsilon = static_cast<float>(epsilon),
                             .h = elements<T>(out.h),
                             .y = elements<T>(out.y),
                             .rstd = elements<float>(out.rstd),
                             .weight_offset = weight_offset});
  return out;
}

template <class T>
struct Gradients {
  at::Tensor dx, dweight;

  Gradients(const at::Tensor& dy, const at::Tensor& h, const at::Tensor& weight,
            const at::Tensor& rstd, const at::Tensor& dresidual = {}, float weight_offset = 0)
      : dx(at::empty_like(h)), dweight(at::zeros({h.size(1)}, at::kFloat)) {
    rms_norm_backward(RmsNormBackward<T>{.dy = elements<T>(dy),
                                         .h = elements<T>(h),
                                         .weight = elements<T>(weight),
                                         .rstd = elements<float>(rstd),
                                         .dresidual = elements<T>(dresidual),
                                         .dx = elements<T>(dx),
                                         .dweight = elements<float>(dweight),
                                         .weight_offset = weight_offset});
  }
};

/// As near to fp64 as the composition in fp32 is.
template <class T>
void expect_gradients(const Gradients<T>& actual, const at::Tensor& dy, const at::Tensor& h,
                      const at::Tensor& weight, const at::Tensor& rstd, float weight_offset = 0) {
  const auto [dx, dweight] = composed::rms_norm_backward(
      dy.to(at::kFloat), h.to(at::kFloat), weight.to(at::kFloat), rstd, weight_offset);
  const at::Tensor dy_d = dy.to(at::kDouble), scale = rstd.to(at::kDouble).unsqueeze(-1);
  const at::Tensor normal = h.to(at::kDouble) * scale;
  const at::Tensor d_normal = dy_d * (weight.to(at::kDouble) + weight_offset);
  const at::Tensor mean = (d_normal * normal).mean(-1, /*keepdim=*/true);
  expect_as_near(actual.dx, dx, (d_normal - normal * mean) * scale);
  expect_as_near(actual.dweight, dweight, (dy_d * normal).sum(0));
}

template <class T>
class RmsNorm : public ::testing::Test {};
TYPED_TEST_SUITE(RmsNorm, ActivationTypes);

TYPED_TEST(RmsNorm, EqualsItsComposition) {
  for (const std::int64_t dim : {1, 33, 64, 200}) {
    const at::Tensor x = normal<TypeParam>({7, dim}, 1), w = normal<TypeParam>({dim}, 2);
    const Normalised actual = normalise<TypeParam>(x, w, {});
    const auto [y, rstd] = composed::rms_norm(x, w, epsilon);
    // In bf16 the normalised value is rounded, too: two ties may fall to the other side.
    expect_close(actual.y, y, 2 * tolerance<TypeParam>());
    expect_close(actual.rstd, rstd, 1e-6);
  }
}

TYPED_TEST(RmsNorm, MayReadItsWeightsLessOne) {
  const at::Tensor x = normal<TypeParam>({7, 33}, 1), dy = normal<TypeParam>({7, 33}, 2);
  const at::Tensor w = normal<TypeParam>({33}, 3), residual = normal<TypeParam>({7, 33}, 4);
  const Normalised actual = normalise<TypeParam>(x, w, {}, 1);
  const auto [y, rstd] = composed::rms_norm(x, w, epsilon, 1);
  expect_close(actual.y, y, 2 * tolerance<TypeParam>());
  const at::Tensor dx = std::get<0>(composed::rms_norm_backward(dy, x, w, rstd, 1));
  const Gradients<TypeParam> alone(dy, x, w, rstd, {}, 1);
  expect_gradients(alone, dy, x, w, rstd, 1);
  const Gradients<TypeParam> added(dy, x, w, rstd, residual, 1);
  expect_within(added.dx, dx + residual, 2 * tolerance<TypeParam>());
}

TYPED_TEST(RmsNorm, AddsTheResidualFirst) {
  const at::Tensor x = normal<TypeParam>({7, 33}, 1), r = normal<TypeParam>({7, 33}, 2);
  const at::Tensor w = normal<TypeParam>({33}, 3);
  const Normalised fused = normalise<TypeParam>(x, w, r);
  EXPECT_TRUE(same_bits(fused.h, x + r));
  EXPECT_TRUE(same_bits(fused.y, normalise<TypeParam>(x + r, w, {}).y));
}

TYPED_TEST(RmsNorm, MayWriteTheSumOverItsInput) {
  const at::Tensor x = normal<TypeParam>({7, 33}, 1), r = normal<TypeParam>({7, 33}, 2);
  const at::Tensor w = normal<TypeParam>({33}, 3), y = at::empty_like(x);
  const Normalised apart = normalise<TypeParam>(x, w, r);
  rms_norm(RmsNormForward<TypeParam>{.x = elements<TypeParam>(x),
                                     .residual = elements<TypeParam>(r),
                                     .weight = elements<TypeParam>(w),
                                     .epsilon = static_cast<float>(epsilon),
                                     .h = elements<TypeParam>(r),
                                     .y = elements<TypeParam>(y),
                                     .rstd = elements<float>(at::empty({7}, at::kFloat))});
  EXPECT_TRUE(same_bits(apart.h, r));
  EXPECT_TRUE(same_bits(apart.y, y));
}

TYPED_TEST(RmsNorm, HasTheGradientOfItsComposition) {
  for (const std::int64_t rows : {7, 70}) {
    const at::Tensor h = normal<TypeParam>({rows, 33}, 1), dy = normal<TypeParam>({rows, 33}, 2);
    const at::Tensor w = normal<TypeParam>({33}, 3);
    const at::Tensor rstd = std::get<1>(composed::rms_norm(h, w, epsilon));
    const Gradients<TypeParam> actual(dy, h, w, rstd);
    expect_gradients(actual, dy, h, w, rstd);
  }
}

TYPED_TEST(RmsNorm, AddsTheGradientOfTheResidual) {
  const at::Tensor h = normal<TypeParam>({7, 33}, 1), dy = normal<TypeParam>({7, 33}, 2);
  const at::Tensor w = normal<TypeParam>({33}, 3), dresidual = normal<TypeParam>({7, 33}, 4);
  const at::Tensor rstd = std::get<1>(composed::rms_norm(h, w, epsilon));
  const at::Tensor h_f = h.to(at::kFloat), w_f = w.to(at::kFloat), dy_f = dy.to(at::kFloat);
  const at::Tensor dx = std::get<0>(composed::rms_norm_backward(dy_f, h_f, w_f, rstd));
  const at::Tensor expected = dx + dresidual.to(at::kFloat);
  const Gradients<TypeParam> actual(dy, h, w, rstd, dresidual);
  expect_within(actual.dx, expected, std::max(tolerance<TypeParam>() / 2, 1e-6));
}

TEST(RmsNormGradient, IsTheSlopeOfTheForwardPass) {
  const at::Tensor h = normal<float>({1, 5}, 1), w = normal<float>({5}, 2);
  const at::Tensor dy = normal<float>({1, 5}, 3);
  const Gradients<float> gradients(dy, h, w, normalise<float>(h, w, {}).rstd);
  const auto loss = [&](const at::Tensor& x) {
    return (normalise<float>(x, w, {}).y * dy).sum().item<double>();
  };
  for (std::int64_t j = 0; j < 5; ++j) {
    at::Tensor step = at::zeros_like(h);
    step[0][j] = 1e-2;
    const double slope = (loss(h + step) - loss(h - step)) / 2e-2;
    EXPECT_NEAR(gradients.dx[0][j].item<double>(), slope, 1e-3);
  }
}

TYPED_TEST(RmsNorm, AccumulatesTheGradientOfItsWeight) {
  const at::Tensor h = normal<TypeParam>({7, 33}, 1), w = normal<TypeParam>({33}, 2);
  const at::Tensor rstd = std::get<1>(composed::rms_norm(h, w, epsilon));
  const Gradients<TypeParam> once(h, h, w, rstd);
  const at::Tensor sum = at::ones({33}, at::kFloat), dx = at::empty_like(h);
  rms_norm_backward(RmsNormBackward<TypeParam>{.dy = elements<TypeParam>(h),
                                               .h = elements<TypeParam>(h),
                                               .weight = elements<TypeParam>(w),
                                               .rstd = elements<float>(rstd),
                                               .dresidual = {},
                                               .dx = elements<TypeParam>(dx),
                                               .dweight = elements<float>(sum)});
  EXPECT_TRUE(same_bits(sum, once.dweight + 1));
}

TYPED_TEST(RmsNorm, LeavesAFrozenWeightAlone) {
  const at::Tensor h = normal<TypeParam>({7, 33}, 1), w = normal<TypeParam>({33}, 2);
  const at::Tensor rstd = std::get<1>(composed::rms_norm(h, w, epsilon)), dx = at::empty_like(h);
  rms_norm_backward(RmsNormBackward<TypeParam>{.dy = elements<TypeParam>(h),
                                               .h = elements<TypeParam>(h),
                                               .weight = elements<TypeParam>(w),
                                               .rstd = elements<float>(rstd),
                                               .dresidual = {},
                                               .dx = elements<TypeParam>(dx),
                                               .dweight = {}});
  EXPECT_TRUE(same_bits(dx, Gradients<TypeParam>(h, h, w, rstd).dx));
}

TYPED_TEST(RmsNorm, GivesTheSameBitsForAnyThreadCount) {
  const at::Tensor h = normal<TypeParam>({131, 333}, 1), dy = normal<TypeParam>({131, 333}, 2);
  const at::Tensor w = normal<TypeParam>({333}, 3);
  const at::Tensor rstd = normalise<TypeParam>(h, w, {}).rstd;
  expect_same_bits_for_any_thread_count([&] { return normalise<TypeParam>(h, w, {}).y; });
  expect_same_bits_for_any_thread_count([&] { return Gradients<TypeParam>(dy, h, w, rstd).dx; });
  expect_same_bits_for_any_thread_count(
      [&] { return Gradients<TypeParam>(dy, h, w, rstd).dweight; });
}

TEST(RmsNormSizes, AreChecked) {
  std::vector<float> x(6), weight(4), y(6), rstd(2);
  EXPECT_ANY_THROW(rms_norm(RmsNormForward<float>{
      .x = x, .residual = {}, .weight = weight, .epsilon = 0, .h = {}, .y = y, .rstd = rstd}));
}

}  // namespace
}  // namespace finetune::kernels::test::rms_norm_test
