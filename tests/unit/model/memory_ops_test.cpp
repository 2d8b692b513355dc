// SPDX-License-Identifier: Apache-2.0
// Blocks of layers that remember: what kernels give, compositions give as well.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "model/block.hpp"
#include "model/layout.hpp"
#include "model/ops.hpp"
#include "model/rope.hpp"
#include "support/weights.hpp"

namespace finetune::model::memory_ops_test {
namespace {

Architecture with_layer(const Layer& layer) {
  Architecture a = tests::rotary({1, 16, 2, 1, 8, 24, 20});
  a.layers = {layer};
  a.delta = {.num_keys = 2, .values_per_key = 2, .key_size = 8, .value_size = 6, .taps = 3};
  a.states = {.num_groups = 2,
              .heads_per_group = 5,
              .head_size = 6,
              .state_size = 8,
              .taps = 4,
              .least_step = 0.6};
  return a;
}

/// Outputs, and the gradients of the input and of every row.
std::vector<at::Tensor> results(const Architecture& a, const Sequence& sequence, Path path) {
  const ParameterTable table = lay_out(a);
  tests::TableWeights weights(table, at::kFloat);
  Ops ops(weights, path);
  const BlockRows& rows = table.decoder.blocks.front();
  const at::Tensor x = tests::normal({sequence.batch * sequence.length, a.d_model}, 1);
  const at::Tensor leaf = x.clone().set_requires_grad(true);
  const at::Tensor y = decoder_block(ops, a, rows, leaf, sequence, 0);
  std::vector<at::Tensor> all = {y.detach()};
  all.push_back(torch::autograd::grad({y}, {leaf}, {tests::normal(y.sizes(), 2)})[0]);
  for (int i = 0; i < rows.all.num; ++i)
    all.push_back(weights.gradient_of(rows.all.first + i));
  return all;
}

void expect_alike(const Architecture& a, const Sequence& sequence) {
  const auto by_kernels = results(a, sequence, Path::kernels);
  const auto composed = results(a, sequence, Path::composed);
  ASSERT_EQ(by_kernels.size(), composed.size());
  for (std::size_t i = 0; i < composed.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_GT(composed[i].abs().max().item<double>(), 0);
    tests::expect_within(by_kernels[i], composed[i], 1e-4);
  }
}

TEST(MemoryOps, GiveTheSameByKernelsAndByCompositions) {
  const Layer delta{.has_delta_rule = true}, states{.has_state_space = true},
      states_alone{.has_state_space = true, .has_feed_forward_half = false};
  for (const Layer& layer : {delta, states, states_alone}) {
    const Architecture a = with_layer(layer);
    expect_alike(a, make_sequence(a, 2, 70));
    // Two samples that share a row, and padding.
    expect_alike(a, make_sequence(a, 1, 90, {{0, 75}, {75, 10}, {85, 5, /*is_padding=*/true}}));
  }
}

/// A text in two passes reads what it reads in one.
TEST(MemoryOps, GoOnWithACache) {
  const Layer delta{.has_delta_rule = true}, states{.has_state_space = true};
  for (const Layer& layer : {delta, states})
    for (const Path path : {Path::kernels, Path::composed}) {
      const at::NoGradGuard no_autograd;
      const Architecture a = with_layer(layer);
      const ParameterTable table = lay_out(a);
      tests::TableWeights weights(table, at::kFloat);
      Ops ops(weights, path);
      const at::Tensor x = tests::normal({12, a.d_model}, 1);
      const auto block = [&](const at::Tensor& part, const Sequence& sequence) {
        return decoder_block(ops, a, table.decoder.blocks.front(), part, sequence, 0);
      };
      const at::Tensor whole = block(x, make_sequence(a, 1, 12));
      KvCache cache{.layers = std::vector<at::Tensor>(1)};
      std::vector<at::Tensor> parts;
      for (const std::int64_t count : {5, 1, 6}) {
        parts.push_back(block(x.narrow(0, cache.length, count), make_sequence(a, count, cache)));
        cache.length += count;
      }
      tests::expect_within(at::cat(parts, 0), whole, 1e-5);
    }
}

}  // namespace
}  // namespace finetune::model::memory_ops_test
