// SPDX-License-Identifier: Apache-2.0
// Norms of heads, biases and temperatures of a fused qkv, against autograd.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "model/ops.hpp"
#include "model/rope.hpp"
#include "support/weights.hpp"

namespace finetune::model::head_norm_test {
namespace {

using tests::expect_within;
using tests::normal;
using tests::TinyWeights;

constexpr AttentionShape shape{.num_heads = 2, .num_kv_heads = 1, .head_size = 4};
constexpr std::int64_t tokens = 10;

at::Tensor normed(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor heads = x.unflatten(1, {-1, shape.head_size});
  return (heads * (heads.pow(2).mean(-1, true) + eps).rsqrt() * weight).flatten(1);
}

TEST(HeadNorm, IsANormOfEachHead) {
  const std::vector<at::Tensor> given = {1 + normal({4}, 1) * 0.2, 1 + normal({4}, 2) * 0.2};
  const at::Tensor qkv = normal({tokens, 16}, 3).set_requires_grad(true);
  const at::Tensor d = normal({tokens, 16}, 4);
  for (const bool has_weights : {true, false}) {
    const at::Tensor wq = has_weights ? given[0].clone().set_requires_grad(true) : at::ones({4});
    const at::Tensor wk = has_weights ? given[1].clone().set_requires_grad(true) : at::ones({4});
    const at::Tensor expected =
        at::cat({normed(qkv.narrow(1, 0, 8), wq, 1e-5), normed(qkv.narrow(1, 8, 4), wk, 1e-5),
                 qkv.narrow(1, 12, 4)},
                1);
    std::vector<at::Tensor> leaves{qkv};
    if (has_weights) leaves.insert(leaves.end(), {wq, wk});
    const auto gradients = torch::autograd::grad({expected}, leaves, {d});
    for (const Path path : {Path::kernels, Path::composed}) {
      TinyWeights weights(given);
      Ops ops(weights, path);
      const at::Tensor y = ops.head_norm(
          qkv, shape, {{{has_weights ? 0 : -1}, 1e-5}, {{has_weights ? 1 : -1}, 1e-5}});
      expect_within(y, expected, 1e-6);
      expect_within(torch::autograd::grad({y}, {qkv}, {d})[0], gradients[0], 1e-5);
      for (int row = 0; has_weights && row < 2; ++row)
        expect_within(weights.gradient_of(row), gradients[static_cast<std::size_t>(row) + 1], 1e-5);
    }
  }
}

TEST(AddBias, AddsItAndItsGradient) {
  TinyWeights weights({normal({16}, 1)});
  Ops ops(weights);
  const at::Tensor x = normal({tokens, 16}, 2).set_requires_grad(true);
  const at::Tensor d = normal({tokens, 16}, 3);
  const at::Tensor y = ops.add_bias(x * 1, {0, 1});
  EXPECT_TRUE(at::equal(y, x + weights.weight({0, 1})));
  for (int pass = 1; pass <= 2; ++pass) {
    const at::Tensor again = ops.add_bias(x * 1, {0, 1});
    EXPECT_TRUE(at::equal(torch::autograd::grad({again}, {x}, {d})[0], d));
    expect_within(weights.gradient_of(0), d.sum(0) * pass, 1e-6);
  }
}

TEST(Temperature, GrowsWithThePosition) {
  TinyWeights weights({});
  Ops ops(weights);
  Architecture a = tests::rotary(4, 100);
  const at::Tensor x = normal({tokens, 16}, 2).set_requires_grad(true);
  const at::Tensor d = normal({tokens, 16}, 3);
  // Two samples: positions begin anew.
  const Sequence sequence = make_sequence(a, 1, tokens, {{0, 6, false}, {6, 4, false}});
  const at::Tensor y = ops.tune_temperature(x * 1, shape, sequence, {.scale = 0.5, .floor = 2});
  const at::Tensor dx = torch::autograd::grad({y}, {x}, {d.clone()})[0];
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t position = i < 6 ? i : i - 6;
    const double factor = 1 + 0.5 * std::log1p(static_cast<double>((position + 1) / 2));
    expect_within(y[i].narrow(0, 0, 8), x[i].narrow(0, 0, 8) * factor, 1e-6);
    EXPECT_TRUE(at::equal(y[i].narrow(0, 8, 8), x[i].narrow(0, 8, 8)));
    expect_within(dx[i].narrow(0, 0, 8), d[i].narrow(0, 0, 8) * factor, 1e-6);
  }
}

}  // namespace
}  // namespace finetune::model::head_norm_test
