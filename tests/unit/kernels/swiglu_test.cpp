// SPDX-License-Identifier: Apache-2.0
#include "kernels/swiglu.hpp"

#include <cmath>

#include "kernels/composed.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::swiglu_test {
namespace {

template <class T>
at::Tensor forward(const at::Tensor& gate_up) {
  const std::int64_t features = gate_up.size(1) / 2;
  at::Tensor y = at::empty({gate_up.size(0), features}, gate_up.options());
  swiglu<T>(elements<T>(gate_up), features, elements<T>(y));
  return y;
}

template <class T>
at::Tensor backward(const at::Tensor& dy, const at::Tensor& gate_up) {
  at::Tensor gradient = at::empty_like(gate_up);
  swiglu_backward<T>(elements<T>(dy), elements<T>(gate_up), dy.size(1), elements<T>(gradient));
  return gradient;
}

template <class T>
class Swiglu : public ::testing::Test {};
TYPED_TEST_SUITE(Swiglu, ActivationTypes);

TYPED_TEST(Swiglu, EqualsItsComposition) {
  for (const std::int64_t features : {1, 33, 64}) {
    const at::Tensor gate_up = normal<TypeParam>({7, 2 * features}, 1) * 4;
    expect_close(forward<TypeParam>(gate_up), composed::swiglu(gate_up), tolerance<TypeParam>());
  }
}

TYPED_TEST(Swiglu, HasTheGradientOfItsComposition) {
  const at::Tensor gate_up = normal<TypeParam>({7, 66}, 1) * 4, dy = normal<TypeParam>({7, 33}, 2);
  const at::Tensor expected = composed::swiglu_backward(dy, gate_up);
  const at::Tensor actual = backward<TypeParam>(dy, gate_up);
  expect_within(actual, expected, tolerance<TypeParam>());
}

TYPED_TEST(Swiglu, MayWriteItsGradientOverItsInput) {
  const at::Tensor gate_up = normal<TypeParam>({7, 66}, 1), dy = normal<TypeParam>({7, 33}, 2);
  const at::Tensor apart = backward<TypeParam>(dy, gate_up), in_place = gate_up.clone();
  swiglu_backward<TypeParam>(elements<TypeParam>(dy), elements<TypeParam>(in_place), 33,
                             elements<TypeParam>(in_place));
  EXPECT_TRUE(same_bits(apart, in_place));
}

TEST(SwigluGradient, IsTheSlopeOfTheForwardPass) {
  const at::Tensor gate_up = normal<float>({1, 6}, 1), dy = at::ones({1, 3}, at::kFloat);
  const at::Tensor gradient = backward<float>(dy, gate_up);
  for (std::int64_t j = 0; j < 6; ++j) {
    at::Tensor step = at::zeros_like(gate_up);
    step[0][j] = 1e-2;
    const at::Tensor rise = forward<float>(gate_up + step) - forward<float>(gate_up - step);
    EXPECT_NEAR(gradient[0][j].item<double>(), rise.sum().item<double>() / 2e-2, 1e-3);
  }
}

TEST(SwigluOfLargeGates, StaysFinite) {
  const at::Tensor gate_up = at::tensor({-1e30f, -200.0f, 200.0f, 1.0f, 1.0f, 1.0f}).view({1, 6});
  const at::Tensor y = forward<float>(gate_up);
  EXPECT_NEAR(y[0][0].item<float>(), 0.0f, 1e-6f);
  EXPECT_NEAR(y[0][1].item<float>(), 0.0f, 1e-6f);
  EXPECT_EQ(y[0][2].item<float>(), 200.0f);
}

TYPED_TEST(Swiglu, GivesTheSameBitsForAnyThreadCount) {
  const at::Tensor gate_up = normal<TypeParam>({700, 66}, 1), dy = normal<TypeParam>({700, 33}, 2);
  expect_same_bits_for_any_thread_count([&] { return forward<TypeParam>(gate_up); });
  expect_same_bits_for_any_thread_count([&] { return backward<TypeParam>(dy, gate_up); });
}

}  // namespace
}  // namespace finetune::kernels::test::swiglu_test
