// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "model/ops.hpp"
#include "unit/model/tiny_weights.hpp"

namespace finetune::model::loss_test {
namespace {

using tests::expect_within;
using tests::normal;
using tests::TinyWeights;

constexpr std::int64_t vocabulary = 11;

at::Tensor labels_of(std::int64_t count) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  return at::randint(vocabulary, {count}, generator, at::TensorOptions(at::kLong));
}

class Loss : public testing::TestWithParam<Path> {};
INSTANTIATE_TEST_SUITE_P(Paths, Loss, testing::Values(Path::kernels, Path::composed));

TEST_P(Loss, IsTheLogarithmOfTheTargetsProbability) {
  TinyWeights weights({at::tensor({0.0f, std::log(2.0f), std::log(5.0f)}).view({3, 1})});
  Ops ops(weights, GetParam());
  const at::Tensor x = at::ones({3, 1});
  const LossSum sum = ops.loss(x, at::tensor({2, -100, 1}, at::kLong), 0);
  EXPECT_NEAR(sum.loss, -std::log(5.0 / 8) - std::log(2.0 / 8), 1e-6);
  EXPECT_EQ(sum.num_targets, 2);
  EXPECT_TRUE(at::equal(sum.correct, at::tensor({1, 1, 0}, at::kLong).to(at::kBool)));
}

/// More tokens than one chunk, some of them not trained, equal the pieces added up.
TEST_P(Loss, OfManyTokensIsTheSumOverPieces) {
  constexpr std::int64_t num_tokens = 1500;
  constexpr double scale = 0.25;
  TinyWeights whole({normal({vocabulary, 4}, 1)});
  TinyWeights pieces({whole.weight({0, 1})});
  const at::Tensor x = normal({num_tokens, 4}, 2);
  for (const bool with_prompts : {false, true}) {
    const at::Tensor labels = labels_of(num_tokens);
    if (with_prompts) labels.slice(0, 0, num_tokens, 7).fill_(-100);
    whole.forget_gradients();
    pieces.forget_gradients();

    at::Tensor d_x;
    const LossSum sum = Ops(whole, GetParam()).loss_and_gradient(x, labels, 0, scale, d_x);
    LossSum added;
    std::vector<at::Tensor> d_pieces, correct;
    for (std::int64_t first = 0; first < num_tokens; first += 500) {
      at::Tensor d_piece;
      const LossSum part = Ops(pieces, GetParam())
                               .loss_and_gradient(x.narrow(0, first, 500),
                                                  labels.narrow(0, first, 500), 0, scale, d_piece);
      added.loss += part.loss;
      added.num_targets += part.num_targets;
      d_pieces.push_back(d_piece);
      correct.push_back(part.correct);
    }
    EXPECT_NEAR(sum.loss, added.loss, 1e-7 * added.loss);
    EXPECT_EQ(sum.num_targets, labels.ge(0).sum().item<std::int64_t>());
    EXPECT_EQ(sum.num_targets, added.num_targets);
    EXPECT_TRUE(at::equal(sum.correct, at::cat(correct)));
    expect_within(d_x, at::cat(d_pieces), 1e-6);
    expect_within(whole.gradient_of(0), pieces.gradient_of(0), 1e-5);
  }
}

TEST_P(Loss, IsTheSameWithAndWithoutItsGradient) {
  TinyWeights weights({normal({vocabulary, 4}, 1)});
  Ops ops(weights, GetParam());
  const at::Tensor x = normal({9, 4}, 2);
  at::Tensor d_x;
  const LossSum with = ops.loss_and_gradient(x, labels_of(9), 0, 3.0, d_x);
  const LossSum without = ops.loss(x, labels_of(9), 0);
  EXPECT_NEAR(with.loss, without.loss, 1e-6 * without.loss);
  EXPECT_TRUE(at::equal(with.correct, without.correct));
}

TEST_P(Loss, OfAPromptAloneIsNothing) {
  TinyWeights weights({normal({vocabulary, 4}, 1)});
  Ops ops(weights, GetParam());
  at::Tensor d_x;
  const LossSum sum =
      ops.loss_and_gradient(normal({3, 4}, 2), at::full({3}, -100, at::kLong), 0, 1.0, d_x);
  EXPECT_EQ(sum.loss, 0);
  EXPECT_EQ(sum.num_targets, 0);
  EXPECT_TRUE(sum.correct.all().item<bool>());
  EXPECT_TRUE(at::equal(d_x, at::zeros({3, 4})));
  EXPECT_FALSE(weights.is_written(0));
}

}  // namespace
}  // namespace finetune::model::loss_test
