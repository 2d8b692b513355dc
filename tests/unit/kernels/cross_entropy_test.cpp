// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.hpp"

#include <cmath>
#include <limits>

#include "kernels/composed.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::cross_entropy_test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Result {
  at::Tensor losses, gradient, hits;

  double loss() const { return losses.to(at::kDouble).sum().item<double>(); }
};

template <class T>
Result loss_and_gradient(const at::Tensor& logits, const at::Tensor& targets,
                         const at::Tensor& scales) {
  const auto rows = [&](at::ScalarType type) { return at::empty({targets.size(0)}, type); };
  const Result result{rows(at::kFloat), logits.clone(), rows(at::kBool)};
  cross_entropy_with_gradient<T>(elements<T>(result.gradient), elements<std::int64_t>(targets),
                                 elements<float>(scales), elements<float>(result.losses),
                                 elements<bool>(result.hits));
  return result;
}

template <class T>
Result loss_and_gradient(const at::Tensor& logits, const at::Tensor& targets, float scale) {
  return loss_and_gradient<T>(logits, targets, at::full({targets.size(0)}, scale));
}

at::Tensor targets_with_ignored(std::int64_t vocabulary, std::int64_t count) {
  at::Tensor targets = integers(vocabulary, count, 5);
  targets[1] = ignored_target;
  targets[count - 1] = ignored_target;
  return targets;
}

template <class T>
class CrossEntropy : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropy, ActivationTypes);

TYPED_TEST(CrossEntropy, EqualsItsComposition) {
  for (const std::int64_t vocabulary : {2, 63, 64, 257, 1000}) {
    const at::Tensor logits = normal<TypeParam>({7, vocabulary}, 1) * 3;
    const at::Tensor targets = targets_with_ignored(vocabulary, 7);
    const at::Tensor scales = normal<float>({7}, 3);
    const Result actual = loss_and_gradient<TypeParam>(logits, targets, scales);
    auto expected = composed::cross_entropy_with_gradient(logits, targets, scales);
    expected.gradient = expected.gradient.to(logits.scalar_type());
    expect_close(actual.losses, expected.losses, 1e-6);
    expect_within(actual.gradient, expected.gradient, tolerance<TypeParam>());
    // Small probabilities, too, are right to their last digits.
    const at::Tensor rest =
        (expected.gradient != 0).scatter(1, targets.clamp_min(0).unsqueeze(1), false);
    expect_close(actual.gradient.masked_select(rest), expected.gradient.masked_select(rest),
                 std::max(tolerance<TypeParam>(), 2e-6));
    EXPECT_TRUE(actual.hits.equal(expected.correct.logical_or(targets.eq(ignored_target))));
  }
}

TYPED_TEST(CrossEntropy, HasTheSameLossWithoutAGradient) {
  const at::Tensor logits = normal<TypeParam>({7, 257}, 1), targets = targets_with_ignored(257, 7);
  const Result with = loss_and_gradient<TypeParam>(logits, targets, 1.0f);
  const at::Tensor before = logits.clone(), losses = at::empty({7}, at::kFloat);
  const at::Tensor hits = at::empty({7}, at::kBool);
  cross_entropy<TypeParam>(elements<TypeParam>(logits), elements<std::int64_t>(targets),
                           elements<float>(losses), elements<bool>(hits));
  EXPECT_TRUE(same_bits(losses, with.losses));
  EXPECT_TRUE(hits.equal(with.hits));
  EXPECT_TRUE(same_bits(logits, before));
}

TYPED_TEST(CrossEntropy, IgnoredRowsHaveNoLossAndNoGradient) {
  const at::Tensor logits = normal<TypeParam>({7, 257}, 1), targets = targets_with_ignored(257, 7);
  const Result result = loss_and_gradient<TypeParam>(logits, targets, 1.0f);
  EXPECT_EQ(result.losses[1].item<float>(), 0.0f);
  EXPECT_EQ(result.gradient[1].count_nonzero().item<std::int64_t>(), 0);
  EXPECT_GT(result.gradient[2].count_nonzero().item<std::int64_t>(), 0);
}

TYPED_TEST(CrossEntropy, CountsTheFirstOfEqualLogitsAsTheAnswer) {
  const at::Tensor logits = at::tensor({0.f, 2.f, 2.f, 1.f, 0.f, 2.f, 2.f, 1.f})
                                .view({2, 4})
                                .to(scalar_type<TypeParam>());
  const at::Tensor targets = at::tensor({1, 2}, at::kLong);
  EXPECT_TRUE(loss_and_gradient<TypeParam>(logits, targets, 1.0f)
                  .hits.equal(at::tensor({1, 0}, at::kInt).to(at::kBool)));
}

TYPED_TEST(CrossEntropy, SurvivesVeryLargeLogits) {
  at::Tensor logits = normal<TypeParam>({3, 257}, 1) * 1e4;
  const at::Tensor targets = integers(257, 3, 2);
  const auto expected = composed::cross_entropy_with_gradient(logits, targets, at::ones({3}));
  const Result actual = loss_and_gradient<TypeParam>(logits, targets, 1.0f);
  expect_close(actual.losses, expected.losses, 1e-6);
  EXPECT_TRUE(at::allclose(actual.gradient.to(at::kFloat), expected.gradient.to(at::kFloat), 0.0,
                           tolerance<TypeParam>()));
}

TYPED_TEST(CrossEntropy, ExcludedLogitsHaveNoProbability) {
  at::Tensor logits = normal<TypeParam>({2, 257}, 1);
  logits.narrow(1, 100, 100).fill_(-infinity);
  const at::Tensor targets = at::tensor({3, 250}, at::kLong);
  const Result result = loss_and_gradient<TypeParam>(logits, targets, 1.0f);
  expect_close(result.losses, composed::cross_entropy(logits, targets).losses, 1e-6);
  EXPECT_EQ(result.gradient.narrow(1, 100, 100).count_nonzero().template item<std::int64_t>(), 0);
}

TYPED_TEST(CrossEntropy, AnExcludedTargetHasInfiniteLoss) {
  at::Tensor logits = normal<TypeParam>({1, 257}, 1);
  logits[0][4] = -infinity;
  const at::Tensor targets = at::tensor({4}, at::kLong);
  EXPECT_EQ(loss_and_gradient<TypeParam>(logits, targets, 1.0f).loss(), infinity);
}

TYPED_TEST(CrossEntropy, ANaNReachesLossAndGradient) {
  at::Tensor logits = normal<TypeParam>({1, 257}, 1);
  logits[0][7] = std::nanf("");
  const at::Tensor targets = at::tensor({4}, at::kLong);
  const Result result = loss_and_gradient<TypeParam>(logits, targets, 1.0f);
  EXPECT_TRUE(std::isnan(result.loss()));
  EXPECT_TRUE(result.gradient.isnan().all().template item<bool>());
}

TEST(CrossEntropyGradient, IsTheSlopeOfTheLoss) {
  const at::Tensor logits = normal<float>({1, 5}, 1), targets = at::tensor({2}, at::kLong);
  const Result result = loss_and_gradient<float>(logits, targets, 0.5f);
  for (std::int64_t v = 0; v < 5; ++v) {
    at::Tensor step = at::zeros_like(logits);
    step[0][v] = 1e-2;
    const double rise = loss_and_gradient<float>(logits + step, targets, 1.0f).loss() -
                        loss_and_gradient<float>(logits - step, targets, 1.0f).loss();
    EXPECT_NEAR(result.gradient[0][v].item<double>(), 0.5 * rise / 2e-2, 1e-4);
  }
}

TYPED_TEST(CrossEntropy, GivesTheSameBitsForAnyThreadCount) {
  const at::Tensor logits = normal<TypeParam>({200, 257}, 1);
  const at::Tensor targets = targets_with_ignored(257, 200);
  expect_same_bits_for_any_thread_count(
      [&] { return loss_and_gradient<TypeParam>(logits, targets, 1.0f).gradient; });
  expect_same_bits_for_any_thread_count(
      [&] { return loss_and_gradient<TypeParam>(logits, targets, 1.0f).losses; });
}

TEST(CrossEntropyTargets, MustLieInTheVocabulary) {
  const at::Tensor logits = normal<float>({1, 5}, 1);
  EXPECT_ANY_THROW(loss_and_gradient<float>(logits, at::tensor({5}, at::kLong), 1.0f));
  EXPECT_ANY_THROW(loss_and_gradient<float>(logits, at::tensor({-1}, at::kLong), 1.0f));
}

TEST(CrossEntropyTargets, MayAllBeMissing) {
  EXPECT_NO_THROW(cross_entropy<float>({}, {}, {}));
}

}  // namespace
}  // namespace finetune::kernels::test::cross_entropy_test
