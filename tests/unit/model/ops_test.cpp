// SPDX-License-Identifier: Apache-2.0
// What ops do with the slots of weight gradients.

#include "model/ops.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/weights.hpp"
#include "unit/model/loss.hpp"

namespace finetune::model::ops_test {
namespace {

using tests::expect_within;
using tests::normal;
using tests::TinyWeights;

/// Runs every op with a weight forward and backward once: rows linear, norm, embedding and head.
struct AllOps {
  TinyWeights weights{{normal({3, 3}, 1), normal({3}, 2), normal({5, 3}, 3), normal({5, 3}, 4)}};
  Ops ops{weights};

  at::Tensor run() {
    const at::Tensor ids = at::tensor({4, 1}, at::kLong);
    const at::Tensor x = ops.embedding(ids, 2).set_requires_grad(true);
    const auto [h, y] = ops.add_norm(ops.linear(x, {0, 1}), ops.norm(x, {{1}, 1e-5}), {{1}, 1e-5});
    at::Tensor d_out;
    tests::loss_and_gradient(ops, (h + y).detach(), ids, 3, 1.0, d_out);
    const at::Tensor d_x = torch::autograd::grad({h + y}, {x}, {d_out})[0];
    ops.embedding_backward(ids, d_x, 2);
    return d_x;
  }
};

TEST(Ops, AddToGradientsThatAreAlreadyThere) {
  AllOps all;
  all.run();
  std::vector<at::Tensor> once;
  for (const int row : {0, 1, 2, 3})
    once.push_back(all.weights.gradient_of(row).clone());
  all.run();
  for (const int row : {0, 1, 2, 3})
    expect_within(all.weights.gradient_of(row), 2 * once[static_cast<std::size_t>(row)], 1e-6);
}

TEST(Ops, LeaveFrozenWeightsAloneAndStillPassGradientsOn) {
  AllOps trained;
  AllOps frozen;
  frozen.weights.frozen = true;
  EXPECT_TRUE(at::equal(frozen.run(), trained.run()));
  for (const int row : {0, 1, 2, 3})
    EXPECT_EQ(frozen.weights.gradient_of(row).min().item<float>(), 1e30f);
}

TEST(Ops, LogitsAreFloatWhateverTheWeights) {
  TinyWeights weights({normal({5, 4}, 1).to(at::kBFloat16)});
  Ops ops(weights);
  const at::Tensor x = normal({1, 4}, 2).to(at::kBFloat16);
  const at::Tensor logits = ops.logits(x, 0);
  EXPECT_EQ(logits.scalar_type(), at::kFloat);
  const at::Tensor exact = at::mm(x.to(at::kDouble), weights.weight({0, 1}).to(at::kDouble).t());
  expect_within(logits, exact, 1.0 / 128);
}

TEST(Ops, NormaliseInFloatWhatIsBfloat16) {
  TinyWeights weights({normal({8}, 1).to(at::kBFloat16)});
  Ops ops(weights);
  const at::Tensor x = (100 * normal({2, 8}, 2)).to(at::kBFloat16);
  const at::Tensor wide = x.to(at::kDouble);
  const at::Tensor exact =
      wide * (wide * wide).mean(1, true).add(1e-5).rsqrt() * weights.weight({0, 1}).to(at::kDouble);
  const at::Tensor y = ops.norm(x, {{0}, 1e-5});
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  expect_within(y, exact, 1.0 / 128);
}

}  // namespace
}  // namespace finetune::model::ops_test
