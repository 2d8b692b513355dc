// SPDX-License-Identifier: Apache-2.0
// Ranks that share every sequence train, evaluate and answer as one rank does.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "adapters/lora/settings.hpp"
#include "parallel/trainer.hpp"
#include "support/golden.hpp"
#include "train/infer/generate.hpp"

namespace finetune::tests::context_test {
namespace {

using plan::ContextMethod;

plan::Numbers fp32() {
  return numbers(core::DType::f32, plan::Determinism::off);
}

/// All ranks share a sequence; or pairs do.
std::vector<Arrangement> shared(Arrangement setup) {
  std::vector<Arrangement> all;
  for (const ContextMethod method : {ContextMethod::ring, ContextMethod::gather}) {
    setup.context = method;
    setup.dp_shard = 1;
    setup.parts = {.cp = world().size()};
    all.push_back(setup);
    if (world().size() != 4) continue;
    setup.dp_shard = 2;
    setup.parts = {.cp = 2};
    all.push_back(setup);
  }
  return all;
}

std::string name_of(const Arrangement& setup) {
  return std::string(setup.context == ContextMethod::ring ? "ring" : "gather") + ", dp_shard " +
         std::to_string(setup.dp_shard) + ", kind " + std::to_string(static_cast<int>(setup.kind)) +
         ", packed " + std::to_string(setup.packed_positions);
}

void expect_close(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_LE(largest_difference(got, expected), 1e-5 * largest_magnitude(expected));
}

void expect_gradient(const Arrangement& setup) {
  const std::vector<float> expected = Trainer({}, setup).gradient();
  for (const Arrangement& each : shared(setup)) {
    SCOPED_TRACE(name_of(each));
    expect_close(Trainer(world(), each).gradient(), expected);
  }
}

class EveryKind : public testing::TestWithParam<TinyKind> {};

TEST_P(EveryKind, HasTheGradientsOfOneRank) {
  // Rows of one sample, and rows that samples share; passes of one row, of three, of all.
  for (const std::int64_t packed_positions : {0, 11, 24})
    for (const std::int64_t micro_batch : {1, 3, 7})
      expect_gradient({.numbers = fp32(),
                       .kind = GetParam(),
                       .micro_batch = micro_batch,
                       .packed_positions = packed_positions});
}

TEST_P(EveryKind, FollowsTheStepsOfOneRank) {
  Arrangement setup{.numbers = fp32(), .kind = GetParam(), .packed_positions = 24};
  const Trajectory expected = Trainer({}, setup).train(10);
  for (const train::Blocks blocks : {train::Blocks::kept, train::Blocks::recomputed}) {
    setup.blocks = blocks;
    setup.recompute =
        blocks == train::Blocks::kept ? model::Recompute::cheap : model::Recompute::nothing;
    for (const Arrangement& each : shared(setup)) {
      const Trajectory got = Trainer(world(), each).train(10);
      for (std::size_t i = 0; i < expected.losses.size(); ++i)
        EXPECT_NEAR(got.losses[i], expected.losses[i], 2e-5 * (1 + expected.losses[i]))
            << name_of(each) << ", step " << i;
      EXPECT_NEAR(got.norms[0], expected.norms[0], 1e-5 * expected.norms[0]) << name_of(each);
      EXPECT_NEAR(got.validation_loss, expected.validation_loss, 1e-4) << name_of(each);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryKind,
                         testing::Values(TinyKind::own_head, TinyKind::experts, TinyKind::latents,
                                         TinyKind::chunks),
                         [](const auto& info) {
                           return info.param == TinyKind::own_head  ? "own_head"
                                  : info.param == TinyKind::chunks  ? "chunks"
                                  : info.param == TinyKind::latents ? "latents"
                                                                    : "experts";
                         });

/// Samples of up to 12 tokens, of a model that was first trained on 4.
class ScaledPositions : public testing::TestWithParam<model::RopeScaling> {};

TEST_P(ScaledPositions, HaveTheGradientsAndLossesOfOneRank) {
  Arrangement setup{
      .numbers = fp32(), .micro_batch = 3, .packed_positions = 24, .rope = GetParam()};
  expect_gradient(setup);
  const double expected = Trainer({}, setup).validation_loss();
  for (const Arrangement& each : shared(setup))
    EXPECT_NEAR(Trainer(world(), each).validation_loss(), expected, 1e-5 * expected)
        << name_of(each);
  const std::vector<float> scaled = Trainer({}, setup).gradient();
  setup.rope = {};
  EXPECT_NE(scaled, Trainer({}, setup).gradient()) << "or nothing was scaled";
}

using RopeKind = model::RopeScaling::Kind;
INSTANTIATE_TEST_SUITE_P(
    Kinds, ScaledPositions,
    testing::Values(
        model::RopeScaling{.kind = RopeKind::linear, .factor = 4},
        model::RopeScaling{.kind = RopeKind::llama3, .factor = 4, .original_max_positions = 4},
        model::RopeScaling{
            .kind = RopeKind::yarn, .factor = 4, .original_max_positions = 4, .amplitude = 1.25}),
    [](const auto& info) {
      return info.param.kind == RopeKind::linear   ? "linear"
             : info.param.kind == RopeKind::llama3 ? "llama3"
                                                   : "yarn";
    });

TEST(Experts, AreBalancedOverAMicroBatchThatRanksShare) {
  for (const std::int64_t packed_positions : {0, 24})
    expect_gradient({.numbers = fp32(),
                     .kind = TinyKind::experts,
                     .micro_batch = 3,
                     .packed_positions = packed_positions,
                     .balances_micro_batch = true});
}

TEST(Adapters, DropTheInputsThatOneRankDrops) {
  model::AdapterSettings lora;
  lora.name = "lora";
  lora.of<adapters::lora::Settings>().r = 3;
  lora.of<adapters::lora::Settings>().dropout = 0.5;
  for (const bool use_dora : {false, true}) {
    lora.of<adapters::lora::Settings>().use_dora = use_dora;
    expect_gradient({.numbers = fp32(), .micro_batch = 3, .adapter = lora});
  }
}

TEST(Samples, MayBeShorterThanTheRanksThatShareThem) {
  const Arrangement setup{.numbers = fp32(), .kind = TinyKind::experts};
  Trainer one({}, setup);
  const std::vector<float> expected = one.gradient(short_samples(one));
  for (const Arrangement& each : shared(setup)) {
    SCOPED_TRACE(name_of(each));
    Trainer trainer(world(), each);
    expect_close(trainer.gradient(short_samples(trainer)), expected);
  }
}

TEST(Evaluation, FindsTheExactMatchesOfOneRank) {
  // Steps enough that some samples are right to the last token, and some are not.
  constexpr std::int64_t num_steps = 40;
  const Arrangement setup{.numbers = fp32(), .packed_positions = 24};
  Trainer one({}, setup);
  for (std::int64_t i = 0; i < num_steps; ++i)
    one.step(i, 2e-2);
  const std::vector<float> weights = one.weights();
  const train::Evaluation expected = one.evaluate();
  EXPECT_GT(expected.exact_match, 0);
  EXPECT_LT(expected.exact_match, 1);
  for (const Arrangement& each : shared(setup)) {
    Trainer trainer(world(), each);
    trainer.take(weights);
    const train::Evaluation got = trainer.evaluate();
    EXPECT_EQ(got.exact_match, expected.exact_match) << name_of(each);
    EXPECT_EQ(got.num_samples, expected.num_samples);
    EXPECT_NEAR(got.loss, expected.loss, 1e-5 * expected.loss) << name_of(each);
  }
}

TEST(Answers, AreThoseOfOneRank) {
  const std::vector<std::int32_t> prompt = {3, 1, 4};
  const train::Sampling greedy{.max_tokens = 12, .stop = {}};
  const Arrangement setup{.numbers = fp32(), .kind = TinyKind::experts};
  Trainer one({}, setup);
  const auto expected = train::generate(one.engine(), prompt, greedy);
  for (const Arrangement& each : shared(setup)) {
    Trainer trainer(world(), each);
    EXPECT_EQ(train::generate(trainer.engine(), prompt, greedy), expected) << name_of(each);
  }
}

TEST(Run, GivesTheSameBitsOnTheSameMesh) {
  for (const auto determinism : {plan::Determinism::run, plan::Determinism::topology}) {
    for (const Arrangement& each :
         shared({.numbers = numbers(core::DType::bf16, determinism), .packed_positions = 24})) {
      const Trajectory first = Trainer(world(), each).train(4);
      EXPECT_TRUE(Trainer(world(), each).train(4) == first) << name_of(each);
    }
  }
}

}  // namespace
}  // namespace finetune::tests::context_test
