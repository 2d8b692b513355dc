// SPDX-License-Identifier: Apache-2.0
// A block's ops and the loss in narrow floats on the CPU: what they give in fp32, within rounding.
// For float16 there are no kernels. Products as this processor has them, and widened.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "model/block.hpp"
#include "model/rope.hpp"
#include "support/weights.hpp"
#include "unit/model/cached.hpp"
#include "unit/model/loss.hpp"

namespace finetune::model::float16_test {
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
  tests::Loss sum;
  at::Tensor d_x;

  explicit Pass(at::ScalarType dtype, Path path = Path::kernels) : weights(weights_as(dtype)) {
    Ops ops(weights, path);
    Architecture a = tests::rotary(4, 100);
    a.num_heads = 2;
    a.num_kv_heads = 1;
    a.norm_eps = 1e-5;
    const BlockRows rows{.attention_norm = {0},
                         .qkv = {1, 1},
                         .attention_out = 2,
                         .feed_forward_norm = {3},
                         .feed_forward = {{4, 1}, 5}};
    const at::Tensor ids = at::tensor({1, 5, 2, 1, 10, 3, 3, 0, 7, 4}, at::kLong);
    const at::Tensor labels = at::tensor({5, 2, -100, 10, 3, 3, 0, 7, 4, 1}, at::kLong);
    const at::Tensor x = ops.embedding(ids, 6).set_requires_grad(true);
    const at::Tensor y = decoder_block(ops, a, rows, x, make_sequence(a, 2, 5), 0);
    at::Tensor d_y;
    sum = tests::loss_and_gradient(ops, y.detach(), labels, 6, 1.0, d_y);
    d_x = torch::autograd::grad({y}, {x}, {d_y})[0];
    ops.embedding_backward(ids, d_x, 6);
  }
};

struct Narrow {
  const char* name;
  at::ScalarType dtype;
  Path path;
  double part;  ///< of the largest entry that rounding may change
};

class NarrowFloat : public testing::TestWithParam<Narrow> {};

TEST_P(NarrowFloat, GivesWhatFloatGives) {
  const auto [name, dtype, path, part] = GetParam();
  const Pass narrow(dtype, path), wide(at::kFloat);
  EXPECT_EQ(narrow.d_x.scalar_type(), dtype);
  EXPECT_NEAR(narrow.sum.loss, wide.sum.loss, part / 4 * wide.sum.loss);
  EXPECT_EQ(narrow.sum.num_labels, 9);
  expect_within(narrow.d_x, wide.d_x, part);
  for (int row = 0; row < 7; ++row) {
    SCOPED_TRACE(row);
    EXPECT_EQ(narrow.weights.gradient_of(row).scalar_type(), dtype);
    expect_within(narrow.weights.gradient_of(row), wide.weights.gradient_of(row), part);
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, NarrowFloat,
                         testing::Values(Narrow{"fp16_by_libtorch", at::kHalf, Path::kernels, 2e-2},
                                         Narrow{"fp16_widened", at::kHalf, Path::widened, 2e-2},
                                         Narrow{"bf16_by_libtorch", at::kBFloat16, Path::kernels,
                                                0.1},
                                         Narrow{"bf16_widened", at::kBFloat16, Path::widened, 0.1}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(NarrowFloat, WindowsAreWidenedToo) {
  // A mask is nothing for our kernel: libtorch's runs on copies in fp32.
  const AttentionShape shape{.num_heads = 4, .num_kv_heads = 2, .head_size = 4, .window = 3};
  const Sequence sequence = make_sequence(tests::rotary(4, 100), 1, 9);
  const at::Tensor input = normal({9, 32}, 3).to(at::kBFloat16), d = normal({9, 16}, 4);
  TinyWeights weights({});
  const auto pass = [&](at::ScalarType dtype) {
    Ops ops(weights, Path::widened);
    const at::Tensor x = input.to(dtype).set_requires_grad(true);
    const at::Tensor y = ops.attention(x.clone(), shape, sequence, 0);
    return std::pair(y.detach(), torch::autograd::grad({y}, {x}, {d.to(dtype)})[0]);
  };
  const auto [y, d_x] = pass(at::kBFloat16);
  const auto [y_wide, d_x_wide] = pass(at::kFloat);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  expect_within(y, y_wide, 2e-2);
  expect_within(d_x, d_x_wide, 3e-2);
}

TEST(Float16, AttendsToACache) {
  const AttentionShape shape{.num_heads = 4, .num_kv_heads = 2, .head_size = 4};
  const Architecture a = tests::rotary(4, 100);
  const at::Tensor input = normal({7, 32}, 3).to(at::kHalf);
  TinyWeights weights({});
  Ops ops(weights);
  const at::Tensor expected = ops.attention(input.to(at::kFloat), shape, make_sequence(a, 1, 7), 0);
  expect_within(tests::with_cache(a, input, shape, {3, 1, 3}), expected, 5e-3);
}

}  // namespace
}  // namespace finetune::model::float16_test
