// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "model/ops.hpp"
#include "support/weights.hpp"
#include "unit/model/loss.hpp"

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
  const tests::Loss sum = tests::loss(ops, x, at::tensor({2, -100, 1}, at::kLong), 0);
  EXPECT_NEAR(sum.loss, -std::log(5.0 / 8) - std::log(2.0 / 8), 1e-6);
  EXPECT_EQ(sum.num_labels, 2);
  EXPECT_TRUE(at::equal(sum.correct_N, at::tensor({1, 1, 0}, at::kLong).to(at::kBool)));
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
    const tests::Loss sum =
        tests::loss_and_gradient(Ops(whole, GetParam()), x, labels, 0, scale, d_x);
    tests::Loss added;
    std::vector<at::Tensor> d_pieces, correct;
    for (std::int64_t first = 0; first < num_tokens; first += 500) {
      at::Tensor d_piece;
      const tests::Loss part =
          tests::loss_and_gradient(Ops(pieces, GetParam()), x.narrow(0, first, 500),
                                   labels.narrow(0, first, 500), 0, scale, d_piece);
      added.loss += part.loss;
      added.num_labels += part.num_labels;
      d_pieces.push_back(d_piece);
      correct.push_back(part.correct_N);
    }
    EXPECT_NEAR(sum.loss, added.loss, 1e-7 * added.loss);
    EXPECT_EQ(sum.num_labels, labels.ge(0).sum().item<std::int64_t>());
    EXPECT_EQ(sum.num_labels, added.num_labels);
    EXPECT_TRUE(at::equal(sum.correct_N, at::cat(correct)));
    expect_within(d_x, at::cat(d_pieces), 1e-6);
    expect_within(whole.gradient_of(0), pieces.gradient_of(0), 1e-5);
  }
}

TEST_P(Loss, IsTheSameWithAndWithoutItsGradient) {
  TinyWeights weights({normal({vocabulary, 4}, 1)});
  Ops ops(weights, GetParam());
  const at::Tensor x = normal({9, 4}, 2);
  at::Tensor d_x;
  const tests::Loss with = tests::loss_and_gradient(ops, x, labels_of(9), 0, 3.0, d_x);
  const tests::Loss without = tests::loss(ops, x, labels_of(9), 0);
  EXPECT_NEAR(with.loss, without.loss, 1e-6 * without.loss);
  EXPECT_TRUE(at::equal(with.correct_N, without.correct_N));
}

/// Any gradient of the log-probabilities, as autograd pulls it back through whole logits.
TEST_P(Loss, PullsBackAnotherGradientForEachToken) {
  constexpr std::int64_t num_tokens = 1100;
  TinyWeights weights({normal({vocabulary, 4}, 1)});
  Ops ops(weights, GetParam());
  const at::Tensor x = normal({num_tokens, 4}, 2), d_log_prob = normal({num_tokens}, 3);
  const at::Tensor labels = labels_of(num_tokens);
  labels.slice(0, 0, num_tokens, 5).fill_(-100);

  const at::Tensor x_leaf = x.clone().set_requires_grad(true);
  const at::Tensor w_leaf = weights.weight({0, 1}).clone().set_requires_grad(true);
  const at::Tensor log_prob = at::log_softmax(x_leaf.matmul(w_leaf.t()), -1)
                                  .gather(1, labels.clamp_min(0).unsqueeze(1))
                                  .squeeze(1)
                                  .mul(labels.ge(0));
  const auto expected = torch::autograd::grad({(log_prob * d_log_prob).sum()}, {x_leaf, w_leaf});

  at::Tensor d_x;
  const LabelScores scores = ops.pull_back_label_scores(x, labels, 0, d_log_prob, d_x);
  expect_within(scores.log_prob_N, log_prob.detach(), 1e-6);
  expect_within(d_x, expected[0], 1e-6);
  expect_within(weights.gradient_of(0), expected[1], 1e-5);
  EXPECT_TRUE(scores.log_prob_N.equal(ops.label_scores(x, labels, 0).log_prob_N));
}

TEST_P(Loss, OfAPromptAloneIsNothing) {
  TinyWeights weights({normal({vocabulary, 4}, 1)});
  Ops ops(weights, GetParam());
  at::Tensor d_x;
  const tests::Loss sum =
      tests::loss_and_gradient(ops, normal({3, 4}, 2), at::full({3}, -100, at::kLong), 0, 1.0, d_x);
  EXPECT_EQ(sum.loss, 0);
  EXPECT_EQ(sum.num_labels, 0);
  EXPECT_TRUE(sum.correct_N.all().item<bool>());
  EXPECT_TRUE(at::equal(d_x, at::zeros({3, 4})));
  EXPECT_FALSE(weights.is_written(0));
}

}  // namespace
}  // namespace finetune::model::loss_test
