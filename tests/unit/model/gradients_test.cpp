// SPDX-License-Identifier: Apache-2.0
// Every op's gradients against central differences of its own forward pass, in fp32; with the
// kernels and with the compositions.

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "model/ops.hpp"
#include "model/rope.hpp"
#include "support/weights.hpp"
#include "unit/model/loss.hpp"

namespace finetune::model::gradients_test {
namespace {

using tests::expect_within;
using tests::normal;
using tests::TinyWeights;

/// Of what central differences with this step can tell in fp32.
constexpr double step = 1e-2;
constexpr double tolerance = 2e-3;

/// d f / d x by central differences; f reads x, which is changed and put back element by element.
at::Tensor differences(const at::Tensor& x, const std::function<double()>& f) {
  at::Tensor gradient = at::empty(x.sizes(), at::kDouble);
  float* values = x.data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float before = values[i];
    values[i] = before + static_cast<float>(step);
    const double above = f();
    values[i] = before - static_cast<float>(step);
    const double below = f();
    values[i] = before;
    gradient.data_ptr<double>()[i] = (above - below) / (2 * step);
  }
  return gradient;
}

using Function = std::function<at::Tensor(const at::Tensor&)>;

/// Sum of f(x) weighted with fixed numbers, so that no direction of the output is left out.
double weighted(const at::Tensor& y) {
  return (y.to(at::kDouble) * normal(y.sizes(), 77).to(at::kDouble)).sum().item<double>();
}

/// Compares d x and, with `row` >= 0, the gradient of that row's weight.
void expect_gradients(const Function& f, const at::Tensor& x, TinyWeights& weights, int row) {
  const at::Tensor leaf = x.clone().set_requires_grad(true);
  const at::Tensor y = f(leaf);
  const at::Tensor d_x = torch::autograd::grad({y}, {leaf}, {normal(y.sizes(), 77)})[0];
  const at::NoGradGuard no_autograd;
  const auto value = [&] { return weighted(f(x)); };
  expect_within(d_x, differences(x, value), tolerance);
  if (row < 0) return;
  EXPECT_TRUE(weights.is_written(row));
  expect_within(weights.gradient_of(row), differences(weights.weight({row, 1}), value), tolerance);
}

class Gradients : public testing::TestWithParam<Path> {};
INSTANTIATE_TEST_SUITE_P(Paths, Gradients, testing::Values(Path::kernels, Path::composed));

TEST_P(Gradients, OfLinear) {
  TinyWeights weights({normal({5, 3}, 1)});
  Ops ops(weights, GetParam());
  expect_gradients(
      [&](const at::Tensor& x) {
        return ops.linear(x, {0, 1});
      },
      normal({4, 3}, 2), weights, 0);
}

TEST_P(Gradients, OfRmsNorm) {
  TinyWeights weights({normal({6}, 1)});
  Ops ops(weights, GetParam());
  expect_gradients(
      [&](const at::Tensor& x) {
        return ops.norm(x, {{0}, 1e-3});
      },
      normal({3, 6}, 2), weights, 0);
}

TEST_P(Gradients, OfAddRmsNormThroughBothResults) {
  TinyWeights weights({normal({6}, 1)});
  Ops ops(weights, GetParam());
  const at::Tensor residual = normal({3, 6}, 3);
  expect_gradients(
      [&](const at::Tensor& x) {
        // Twice x, so that the gradient of the residual counts as well.
        const auto [h, y] = ops.add_norm(x, residual + x, {{0}, 1e-3});
        return at::cat({h, y}, 1);
      },
      normal({3, 6}, 2), weights, 0);
}

TEST_P(Gradients, OfOtherNorms) {
  const Norm layer{.rows = {0, 1}, .eps = 1e-3, .kind = {.is_centred = true, .has_bias = true}};
  const Norm without_bias{.rows = {0}, .eps = 1e-3, .kind = {.is_centred = true}};
  const Norm above_one{.rows = {0}, .eps = 1e-3, .kind = {.weight_offset = 1}};
  for (const Norm& norm : {layer, without_bias, above_one})
    for (int row = 0; row <= norm.rows.bias || row == 0; ++row) {
      TinyWeights weights({normal({6}, 1), normal({6}, 4)});
      Ops ops(weights, GetParam());
      const at::Tensor residual = normal({3, 6}, 3);
      expect_gradients(
          [&](const at::Tensor& x) {
            const auto [h, y] = ops.add_norm(x, residual + x, norm);
            return at::cat({h, ops.norm(y, norm)}, 1);
          },
          normal({3, 6}, 2), weights, row);
    }
}

TEST_P(Gradients, OfActivations) {
  using enum Activation::Function;
  for (const auto function : {silu, gelu, gelu_tanh, relu_squared})
    for (const bool is_gated : {true, false}) {
      TinyWeights weights({});
      Ops ops(weights, GetParam());
      const Activation activation{function, is_gated};
      expect_gradients([&](const at::Tensor& x) { return ops.activate(x, activation); },
                       normal({3, 10}, 2), weights, -1);
    }
}

TEST_P(Gradients, OfActivationsWithNumbersOfTheirOwn) {
  const Activation activation{Activation::Function::xielu, false};
  for (const int row : {0, 1}) {
    TinyWeights weights({at::tensor({0.7F}), at::tensor({-0.4F}), at::scalar_tensor(0.5F),
                         at::scalar_tensor(-1e-6F)});
    Ops ops(weights, GetParam());
    expect_gradients(
        [&](const at::Tensor& x) {
          return ops.activate(x, activation, {0, 4});
        },
        normal({3, 10}, 2), weights, row);
  }
}

TEST_P(Gradients, OfAGate) {
  TinyWeights weights({normal({1, 6}, 1)});
  Ops ops(weights, GetParam());
  expect_gradients(
      [&](const at::Tensor& x) {
        return ops.gate(x * x, ops.linear(x, {0, 1}));
      },
      normal({4, 6}, 2), weights, 0);
}

TEST_P(Gradients, OfSoftcaps) {
  TinyWeights weights({});
  Ops ops(weights, GetParam());
  const AttentionShape shape{
      .num_heads = 2, .num_kv_heads = 1, .head_size = 4, .window = 3, .softcap = 0.5};
  const Sequence sequence = make_sequence(tests::rotary(4, 100), 1, 5);
  expect_gradients([&](const at::Tensor& x) { return ops.attention(x * 1, shape, sequence, 0); },
                   normal({5, 16}, 2), weights, -1);
}

TEST_P(Gradients, OfARotation) {
  TinyWeights weights({});
  Ops ops(weights, GetParam());
  const AttentionShape shape{.num_heads = 2, .num_kv_heads = 1, .head_size = 4};
  const Sequence sequence = make_sequence(tests::rotary(4, 100), 1, 5);
  expect_gradients([&](const at::Tensor& x) { return ops.rotate(x * 1, shape, sequence); },
                   normal({5, 16}, 2), weights, -1);
}

TEST_P(Gradients, OfSwiglu) {
  TinyWeights weights({});
  Ops ops(weights, GetParam());
  expect_gradients([&](const at::Tensor& x) { return ops.activate(x, {}); }, normal({3, 10}, 2),
                   weights, -1);
}

TEST_P(Gradients, OfNormedAndActivatedProducts) {
  for (const Recompute recompute : {Recompute::nothing, Recompute::cheap}) {
    TinyWeights weights({normal({6}, 1), normal({10, 6}, 4), normal({6, 5}, 5)});
    Ops ops(weights, GetParam(), recompute);
    const at::Tensor residual = normal({3, 6}, 3);
    const auto f = [&](const at::Tensor& x) {
      const auto [h, gate_up] = ops.add_norm_linear(x, residual + x, {{0}, 1e-3}, {1, 1});
      const at::Tensor y = h + ops.activated_linear(gate_up, {}, {}, {2, 1});
      return ops.norm_linear(y, {{0}, 1e-3}, {1, 1});
    };
    for (const int row : {0, 1, 2}) {
      weights.forget_gradients();
      expect_gradients(f, normal({3, 6}, 2), weights, row);
    }
  }
}

/// Two sequences of 5 tokens with 4 query heads to each of `num_kv_heads` groups.
void expect_attention_gradients(std::int64_t num_kv_heads, Path path) {
  const AttentionShape shape{.num_heads = 4, .num_kv_heads = num_kv_heads, .head_size = 4};
  const Sequence sequence = make_sequence(tests::rotary(4, 100), 2, 5);
  TinyWeights weights({});
  Ops ops(weights, path);
  expect_gradients(
      // The op rotates its input in place: it gets its own.
      [&](const at::Tensor& qkv) { return ops.attention(qkv.clone(), shape, sequence, 0); },
      normal({10, (4 + 2 * num_kv_heads) * 4}, 2), weights, -1);
}

TEST_P(Gradients, OfAttention) {
  expect_attention_gradients(4, GetParam());
}

TEST_P(Gradients, OfAttentionWithSharedKeys) {
  expect_attention_gradients(2, GetParam());
  expect_attention_gradients(1, GetParam());
}

TEST_P(Gradients, OfTheLoss) {
  TinyWeights weights({normal({7, 3}, 1)});
  Ops ops(weights, GetParam());
  const at::Tensor x = normal({4, 3}, 2);
  const at::Tensor labels = at::tensor({6, -100, 0, 3}, at::kLong);
  constexpr double scale = 0.5;
  at::Tensor d_x;
  tests::loss_and_gradient(ops, x, labels, 0, scale, d_x);
  const auto value = [&] { return scale * tests::loss(ops, x, labels, 0).loss; };
  expect_within(d_x, differences(x, value), tolerance);
  expect_within(weights.gradient_of(0), differences(weights.weight({0, 1}), value), tolerance);
}

TEST_P(Gradients, OfTheEmbedding) {
  TinyWeights weights({normal({5, 3}, 1)});
  Ops ops(weights, GetParam());
  const at::Tensor ids = at::tensor({2, 0, 2, 4}, at::kLong);
  ops.embedding_backward(ids, normal({4, 3}, 77), 0);
  expect_within(
      weights.gradient_of(0),
      differences(weights.weight({0, 1}), [&] { return weighted(ops.embedding(ids, 0)); }),
      tolerance);
}

}  // namespace
}  // namespace finetune::model::gradients_test
