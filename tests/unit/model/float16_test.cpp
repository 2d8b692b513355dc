// SPDX-License-Identifier: Apache-2.0
// A block's ops and the loss in float16 on the CPU, for which there are no kernels: what they give
// in fp32, within float16's rounding.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "model/blocks.hpp"
#include "model/rope.hpp"
#include "unit/model/tiny_weights.hpp"

namespace finetune::model {
namespace {

using tests::expect_within;
using tests::normal;
using tests::TinyWeights;

constexpr std::int64_t width = 8, features = 12, vocabulary = 11, num_tokens = 10;

std::vector<at::Tensor> weights_as(at::ScalarType dtype) {
  std::vector<at::Tensor> tensors = {normal({width}, 1),
                                     normal({2 * width, width}, 2),  // q of 2 heads; k and v of 1
                                     normal({width, width}, 3),
                                     normal({width}, 4),
                                     normal({2 * features, width}, 5),
                                     normal({width, features}, 6),
                                     normal({vocabulary, width}, 7)};
  for (at::Tensor& tensor : tensors)
    tensor = (0.5 * tensor).to(at::kHalf).to(dtype);
  return tensors;
}

struct Pass {
  TinyWeights weights;
  LossSum sum;
  at::Tensor d_x;

  explicit Pass(at::ScalarType dtype) : weights(weights_as(dtype)) {
    Ops ops(weights);
    Architecture a = tests::rotary(4, 100);
    a.num_heads = 2;
    a.num_kv_heads = 1;
    a.norm_eps = 1e-5;
    const BlockRows rows{.attention_norm = 0,
                         .qkv = {1, 1},
                         .attention_out = 2,
                         .feed_forward_norm = 3,
                         .feed_forward = {{4, 1}, 5}};
    const at::Tensor ids = at::tensor({1, 5, 2, 1, 10, 3, 3, 0, 7, 4}, at::kLong);
    const at::Tensor labels = at::tensor({5, 2, -100, 10, 3, 3, 0, 7, 4, 1}, at::kLong);
    const at::Tensor x = ops.embedding(ids, 6).set_requires_grad(true);
    const at::Tensor y = pre_norm_block(ops, a, rows, x, make_sequence(a, 2, 5), 0);
    at::Tensor d_y;
    sum = ops.loss_and_gradient(y.detach(), labels, 6, 1.0, d_y);
    d_x = torch::autograd::grad({y}, {x}, {d_y})[0];
    ops.embedding_backward(ids, d_x, 6);
  }
};

TEST(Float16, GivesWhatFloatGives) {
  const Pass half(at::kHalf), wide(at::kFloat);
  EXPECT_EQ(half.d_x.scalar_type(), at::kHalf);
  EXPECT_NEAR(half.sum.loss, wide.sum.loss, 5e-3 * wide.sum.loss);
  EXPECT_EQ(half.sum.num_targets, 9);
  expect_within(half.d_x, wide.d_x, 2e-2);
  for (int row = 0; row < 7; ++row) {
    SCOPED_TRACE(row);
    EXPECT_EQ(half.weights.gradient_of(row).scalar_type(), at::kHalf);
    expect_within(half.weights.gradient_of(row), wide.weights.gradient_of(row), 2e-2);
  }
}

TEST(Float16, AttendsToACache) {
  const AttentionShape shape{.num_heads = 4, .num_kv_heads = 2, .head_size = 4};
  const Architecture a = tests::rotary(4, 100);
  const at::Tensor input = normal({7, 32}, 3).to(at::kHalf);
  TinyWeights weights({});
  Ops ops(weights);
  const at::Tensor expected = ops.attention(input.to(at::kFloat), shape, make_sequence(a, 1, 7), 0);
  KvCache cache;
  cache.layers.resize(1);
  std::vector<at::Tensor> outputs;
  for (const std::int64_t length : {3, 1, 3}) {
    outputs.push_back(ops.attention(input.narrow(0, cache.length, length).clone(), shape,
                                    make_sequence(a, length, cache), 0));
    cache.length += length;
  }
  expect_within(at::cat(outputs), expected, 5e-3);
}

}  // namespace
}  // namespace finetune::model
