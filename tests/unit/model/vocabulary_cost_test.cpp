// SPDX-License-Identifier: Apache-2.0
// What the embedding and the head hold with low-rank parts, against what their twins on sizes say.
#include <gtest/gtest.h>

#include <utility>

#include "adapters/lora/cost.hpp"
#include "adapters/lora/math.hpp"
#include "model/cost/cost_ops.hpp"
#include "model/ops.hpp"
#include "support/allocations.hpp"
#include "support/weights.hpp"

namespace finetune::model::vocabulary_cost_test {
namespace {

constexpr std::int64_t tokens = 96;

/// An embedding, and a head of its own, frozen, with low-rank parts; or one matrix that is both.
ParameterTable vocabulary(bool is_tied) {
  ParameterTable table;
  table.units = {"all"};
  constexpr std::int64_t vocabulary = 300, width = 64, rank = 8;
  const auto add = [&](std::vector<std::int64_t> shape, bool trainable) {
    table.rows.push_back({.name = "row", .shape = std::move(shape), .trainable = trainable});
    return static_cast<int>(table.rows.size()) - 1;
  };
  const auto adapt = [&](int row, int a, int b, bool of_transpose) {
    table.rows[static_cast<std::size_t>(row)].adapted = {.parts = {a, b},
                                                         .scale = 2,
                                                         .of_transpose = of_transpose,
                                                         .cost = &adapters::lora::cost(),
                                                         .math = &adapters::lora::math()};
  };
  const int embedding = add({vocabulary, width}, false);
  table.decoder.embedding = table.decoder.head = embedding;
  const int a = add({rank, vocabulary}, true), b = add({width, rank}, true);
  adapt(embedding, a, b, true);
  if (is_tied) return table;
  table.decoder.head = add({vocabulary, width}, false);
  const int of_inputs = add({rank, width}, true), of_outputs = add({vocabulary, rank}, true);
  adapt(table.decoder.head, of_inputs, of_outputs, false);
  return table;
}

class VocabularyCost : public testing::TestWithParam<std::pair<bool, core::DType>> {};

TEST_P(VocabularyCost, IsWhatTheEndsOfAPassHold) {
  const auto& [is_tied, compute] = GetParam();
  const ParameterTable table = vocabulary(is_tied);
  const at::ScalarType dtype = compute == core::DType::f32 ? at::kFloat : at::kBFloat16;
  tests::TableWeights weights(table, dtype);
  Ops ops(weights, Path::widened);
  CostOps cost(table, {.compute = compute});
  const at::Tensor ids = at::arange(tokens).remainder(300), d_x = at::ones({tokens, 64}, dtype);
  const at::Tensor scores = at::ones({tokens}, at::kFloat);
  const auto peak = [](const auto& run) {
    run();  // puts weights together
    const tests::Allocations allocations;
    run();
    return allocations.peak_bytes();
  };
  const TensorSize of_ids = {.rows = tokens, .columns = 1};
  const TensorSize x = cost.embedding(of_ids, table.decoder.embedding);
  constexpr std::int64_t of_a_number = 16;  // the scale, where it is rounded
  EXPECT_NEAR(peak([&] { ops.embedding(ids, table.decoder.embedding); }),
              cost.tape().worst_without_backward().total(), of_a_number);
  EXPECT_NEAR(peak([&] { ops.embedding_backward(ids, d_x, table.decoder.embedding); }),
              cost.tape().worst(of_ids, x).total() - 2 * x.bytes, of_a_number)
      << "x is gone, and its gradient is somebody else's";
  CostOps of_head(table, {.compute = compute});
  TensorSize d_head = x;
  of_head.pull_back_label_scores(x, of_ids, table.decoder.head, of_ids, d_head);
  const std::int64_t held = peak([&] {
    at::Tensor gradient;
    ops.pull_back_label_scores(d_x, ids, table.decoder.head, scores, gradient);
  });
  // Whoever runs the head holds its input.
  const auto planned = of_head.tape().worst_without_backward().total() - x.bytes;
  // Scores, places and the like are a few bytes per token.
  EXPECT_NEAR(static_cast<double>(held) / static_cast<double>(planned), 1, 0.02);
}

INSTANTIATE_TEST_SUITE_P(Ends, VocabularyCost,
                         testing::Values(std::pair(false, core::DType::f32),
                                         std::pair(true, core::DType::f32),
                                         std::pair(false, core::DType::bf16)));

}  // namespace
}  // namespace finetune::model::vocabulary_cost_test
