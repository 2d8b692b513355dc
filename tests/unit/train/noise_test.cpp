// SPDX-License-Identifier: Apache-2.0
#include "train/step/noise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "optim/clip.hpp"
#include "optim/pass_norms.hpp"
#include "optimizers/adamw/adamw.hpp"
#include "support/tiny_model.hpp"
#include "train/run/detail/noise_keeper.hpp"
#include "train/step/step.hpp"

namespace finetune::train::noise_test {
namespace {

using tests::TinyModel;

shard::Options options(plan::Determinism determinism) {
  shard::Options options = TinyModel::in_fp32();
  options.numbers.determinism = determinism;
  options.numbers.keeps_passes_apart = true;
  return options;
}

StepResult run(const comm::Communicator& ranks, plan::Determinism determinism,
               std::int32_t num_samples = 5, std::int64_t micro_batch = 1) {
  TinyModel tiny(shard::one_copy(ranks), options(determinism));
  optimizers::adamw::AdamW optimizer({}, tiny.table, tiny.shards);
  return run_step(tiny.engine(), ranks, tests::tiny_step(ranks, num_samples, micro_batch),
                  optimizer, {.step = 0, .lr = 0, .max_grad_norm = 1, .wants_noise = true});
}

/// With gradients of tokens that are drawn, both estimates are right on average: here their
/// expected squares are put in.
TEST(Noise, SolvesForWhatTheExpectedSquaresAreMadeOf) {
  constexpr double trace = 12, squares = 0.5;
  std::vector<PassGradient> gradients;
  double tokens = 0;
  for (const double weight : {3.0, 10.0, 7.0}) {
    gradients.push_back({.weight = weight});
    tokens += weight;
  }
  for (PassGradient& one : gradients) {
    const double mean = squares + trace / one.weight;  // of the micro-batch's own mean
    one.squares = mean * std::pow(one.weight / tokens, 2);
  }
  gradients.push_back({});  // a rank without a micro-batch
  const auto noise = estimate_noise(gradients, squares + trace / tokens);
  ASSERT_TRUE(noise);
  EXPECT_NEAR(noise->trace, trace, 1e-12);
  EXPECT_NEAR(noise->squares, squares, 1e-12);
  EXPECT_EQ(noise->weight, 20);
}

TEST(Noise, NeedsTwoMicroBatchesAndFiniteNumbers) {
  const std::vector<PassGradient> one = {{.squares = 1, .weight = 2}, {}};
  EXPECT_FALSE(estimate_noise(one, 1));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<PassGradient> two = {{.squares = 1, .weight = 2}, {.squares = 1, .weight = 3}};
  EXPECT_TRUE(estimate_noise(two, 1));
  EXPECT_FALSE(estimate_noise(two, nan));
  EXPECT_FALSE(estimate_noise(std::vector<PassGradient>{two[0], {.squares = nan, .weight = 1}}, 1));
}

/// The passes of a step by themselves: their gradients are those of steps of one micro-batch.
TEST(Noise, OfAStepIsThatOfItsMicroBatches) {
  for (const auto determinism : {plan::Determinism::run, plan::Determinism::topology}) {
    const StepResult whole = run({}, determinism);
    ASSERT_TRUE(whole.noise);
    const data::StepData data = tests::tiny_step({}, 5, 1);
    std::vector<PassGradient> gradients;
    for (const auto& batch : data.micro_steps) {
      TinyModel tiny(shard::one_copy({}), options(determinism));
      tiny.shards.reset_gradients(1);
      const PassResult pass = forward_backward(tiny.engine(), batch,
                                               1.0 / static_cast<double>(data.num_trained_tokens));
      end_passes(tiny.engine());
      gradients.push_back(
          {.squares = std::pow(optim::gradient_norm(tiny.shards), 2), .weight = pass.weight});
    }
    const auto expected = estimate_noise(gradients, whole.grad_norm * whole.grad_norm);
    ASSERT_TRUE(expected);
    EXPECT_NEAR(whole.noise->trace, expected->trace, 1e-5 * std::abs(expected->trace));
    EXPECT_NEAR(whole.noise->squares, expected->squares, 1e-5 * std::abs(expected->squares));
    EXPECT_EQ(whole.noise->weight, static_cast<double>(data.num_trained_tokens));
  }
}

TEST(Noise, HasTheSameBitsOnAnyRanks) {
  for (const std::int64_t micro_batch : {1, 2}) {
    const auto alone = run({}, plan::Determinism::topology, 7, micro_batch).noise;
    const auto shared = run(tests::world(), plan::Determinism::topology, 7, micro_batch).noise;
    EXPECT_TRUE(alone && shared);
    if (!alone || !shared) continue;
    EXPECT_EQ(shared->trace, alone->trace);
    EXPECT_EQ(shared->squares, alone->squares);
    EXPECT_EQ(shared->weight, alone->weight);
  }
}

TEST(Noise, OfOneMicroBatchIsNone) {
  EXPECT_FALSE(run(tests::world(), plan::Determinism::run, 3, 4).noise);
}

TEST(NoiseKeeper, SmoothsBothPartsAndContinuesFromWhatWasWritten) {
  NoiseKeeper keeper, straight;
  const NoiseEstimate first{.trace = 8, .squares = 2, .weight = 100},
      second{.trace = 16, .squares = -1, .weight = 50};
  EXPECT_FALSE(keeper.to_json());
  const auto one = keeper.add(first, 10);
  EXPECT_NEAR(*one.scale_tokens, 4, 1e-12);
  EXPECT_NEAR(*one.scale, 0.4, 1e-12);
  straight.add(first, 10);
  NoiseKeeper continued(*keeper.to_json());
  const auto two = continued.add(second, 10), expected = straight.add(second, 10);
  EXPECT_EQ(two.trace, 16);
  EXPECT_EQ(two.squares, -1);
  EXPECT_EQ(*two.scale_tokens, *expected.scale_tokens);
  EXPECT_NEAR(*two.scale_tokens, (0.9 * 8 + 16) / (0.9 * 2 - 1), 1e-12);
  EXPECT_NEAR(*two.scale, *two.scale_tokens * 10 / 50, 1e-12);
}

TEST(NoiseKeeper, HasNoScaleOfNoGradient) {
  NoiseKeeper keeper;
  EXPECT_FALSE(keeper.add({.trace = 1, .squares = -1, .weight = 5}, 2).scale);
  EXPECT_FALSE(keeper.add({.trace = -9, .squares = 9, .weight = 5}, 2).scale_tokens);
}

}  // namespace
}  // namespace finetune::train::noise_test
