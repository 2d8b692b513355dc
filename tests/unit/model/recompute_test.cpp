// SPDX-License-Identifier: Apache-2.0
// What a block keeps for its backward pass, and that its gradients do not depend on it.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "model/block.hpp"
#include "model/rope.hpp"
#include "support/allocations.hpp"
#include "support/weights.hpp"
#include "unit/model/loss.hpp"

namespace finetune::model::recompute_test {
namespace {

using tests::Allocations;
using tests::normal;
using tests::TinyWeights;

constexpr std::int64_t batch = 2, length = 5, tokens = batch * length;
constexpr std::int64_t d_model = 12, num_heads = 4, num_kv_heads = 2, head_size = 4, d_ff = 20;
constexpr std::int64_t qkv_size = (num_heads + 2 * num_kv_heads) * head_size;

/// Rows as BlockRows below names them; a range is found by its first row.
TinyWeights block_weights(at::ScalarType dtype) {
  std::vector<at::Tensor> tensors{normal({d_model}, 1),
                                  normal({qkv_size, d_model}, 2),
                                  normal({d_model, num_heads * head_size}, 3),
                                  normal({d_model}, 4),
                                  normal({2 * d_ff, d_model}, 5),
                                  normal({d_model, d_ff}, 6)};
  for (at::Tensor& tensor : tensors)
    tensor = tensor.to(dtype);
  return TinyWeights(tensors);
}
constexpr int num_rows = 6;

Architecture architecture() {
  Architecture a = tests::rotary(head_size, 100);
  a.num_heads = num_heads;
  a.num_kv_heads = num_kv_heads;
  return a;
}

at::Tensor block(Ops& ops, const at::Tensor& x_ND) {
  const BlockRows rows{.attention_norm = {0},
                       .qkv = {1, 1},
                       .attention_out = 2,
                       .feed_forward_norm = {3},
                       .feed_forward = {{4, 1}, 5}};
  const Sequence sequence = make_sequence(architecture(), batch, length);
  return decoder_block(ops, architecture(), rows, x_ND, sequence, 0);
}

/// The same of ops that keep all they need.
at::Tensor plain_block(Ops& ops, const at::Tensor& x_ND) {
  const Architecture a = architecture();
  const AttentionShape heads{num_heads, num_kv_heads, head_size};
  const Sequence sequence = make_sequence(a, batch, length);
  const at::Tensor qkv = ops.linear(ops.norm(x_ND, {{0}, a.norm_eps}), {1, 1});
  const at::Tensor attention = ops.linear(ops.attention(qkv, heads, sequence, 0), {2, 1});
  const auto [h, normed] = ops.add_norm(attention, x_ND, {{3}, a.norm_eps});
  return h + ops.linear(ops.activate(ops.linear(normed, {4, 1}), {}), {5, 1});
}

/// The block's output, the gradient of its input, and those of its weights.
template <typename Block>
std::vector<at::Tensor> results(const Block& run, Recompute recompute, at::ScalarType dtype) {
  TinyWeights weights = block_weights(dtype);
  Ops ops(weights, Path::kernels, recompute);
  const at::Tensor x = normal({tokens, d_model}, 7).to(dtype).set_requires_grad(true);
  std::vector<at::Tensor> all;
  // Twice: the second pass adds to the gradients of the first.
  for (const std::uint64_t seed : {8, 9}) {
    const at::Tensor y = run(ops, x);
    const at::Tensor dy = normal({tokens, d_model}, seed).to(dtype);
    all.push_back(y.detach());
    all.push_back(torch::autograd::grad({y}, {x}, {dy})[0]);
  }
  for (int row = 0; row < num_rows; ++row) {
    EXPECT_TRUE(weights.is_written(row));
    all.push_back(weights.gradient_of(row));
  }
  return all;
}

void expect_same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const at::ScalarType bits = a[i].element_size() == 2 ? at::kShort : at::kInt;
    EXPECT_TRUE(a[i].isfinite().all().item<bool>());
    EXPECT_TRUE(at::equal(a[i].view(bits), b[i].view(bits))) << "result " << i;
  }
}

TEST(Recompute, DoesNotChangeABit) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    expect_same_bits(results(block, Recompute::cheap, dtype),
                     results(block, Recompute::nothing, dtype));
}

TEST(Recompute, FusedOpsAreTheirPartsBitForBit) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    expect_same_bits(results(block, Recompute::nothing, dtype),
                     results(plain_block, Recompute::nothing, dtype));
}

/// Bytes of fp32 tensors that live on after a block's forward pass.
std::int64_t kept_bytes(Recompute recompute) {
  TinyWeights weights = block_weights(at::kFloat);
  Ops ops(weights, Path::kernels, recompute);
  const at::Tensor x = normal({tokens, d_model}, 7).set_requires_grad(true);
  const Allocations allocations;
  const at::Tensor y = block(ops, x);
  return allocations.live_bytes();
}

TEST(Recompute, KeepsNeitherNormedNorActivatedTensors) {
  EXPECT_EQ(kept_bytes(Recompute::nothing) - kept_bytes(Recompute::cheap),
            4 * tokens * (2 * d_model + d_ff));
}

TEST(Recompute, KeepsTheProductsAndLittleElse) {
  const std::int64_t products = qkv_size + num_heads * head_size + 2 * d_ff;  // and attention's
  const std::int64_t residuals = d_model + d_model;                           // h and the result
  const std::int64_t rows = 2 + num_heads;                      // rstd and attention's logsumexp
  const std::int64_t rotary = 2 + length * head_size / tokens;  // positions, cos, sin
  EXPECT_EQ(kept_bytes(Recompute::cheap), 4 * tokens * (products + residuals + rows + rotary));
}

TEST(Recompute, FreesEverythingWithTheBackwardPass) {
  for (const Recompute recompute : {Recompute::nothing, Recompute::cheap}) {
    TinyWeights weights = block_weights(at::kFloat);
    Ops ops(weights, Path::kernels, recompute);
    const at::Tensor x = normal({tokens, d_model}, 7).set_requires_grad(true);
    const at::Tensor dy = normal({tokens, d_model}, 8);
    const Allocations allocations;
    {
      const at::Tensor y = block(ops, x);
      torch::autograd::grad({y}, {x}, {dy});
    }
    EXPECT_EQ(allocations.live_bytes(), 0);
  }
}

TEST(Loss, NeverHoldsTheLogitsOfAllTokens) {
  constexpr std::int64_t chunk = 1024, num_tokens = 4 * chunk, vocabulary = 64, width = 2;
  TinyWeights weights({normal({vocabulary, width}, 1)});
  Ops ops(weights);
  const at::Tensor x = normal({num_tokens, width}, 2);
  at::Tensor labels = at::arange(num_tokens, at::kLong).remainder(vocabulary);
  for (const std::int64_t untrained : {0, 1000}) {
    labels.narrow(0, 0, untrained).fill_(-100);
    const Allocations allocations;
    at::Tensor d_x;
    tests::loss_and_gradient(ops, x, labels, 0, 1.0, d_x);
    const std::int64_t chunk_bytes = 4 * chunk * vocabulary;
    EXPECT_GE(allocations.peak_bytes(), chunk_bytes) << "the test sees the logits";
    EXPECT_LT(allocations.peak_bytes(), 2 * chunk_bytes);
  }
}

}  // namespace
}  // namespace finetune::model::recompute_test
