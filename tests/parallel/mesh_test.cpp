// SPDX-License-Identifier: Apache-2.0
// Ranks that share matrices, sequences or experts train the model that one rank does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "adapters/lora/settings.hpp"
#include "comm/agree.hpp"
#include "parallel/meshes.hpp"
#include "parallel/trainer.hpp"
#include "train/infer/generate.hpp"
#include "train/run/detail/replicas.hpp"

namespace finetune::tests::mesh_test {
namespace {

using plan::Determinism;

/// Twenty steps of the usual one make of a difference in the last bit one in the fourth digit.
constexpr double gentle_lr = 1e-3;

float largest(const std::vector<float>& values) {
  float largest = 0;
  for (const float value : values)
    largest = std::max(largest, std::abs(value));
  return largest;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

void expect_gradient(Arrangement setup, const std::vector<float>& expected) {
  const std::vector<float> got = Trainer(world(), setup).gradient();
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_LE(largest_difference(got, expected), 1e-5f * largest(expected)) << name_of(setup);
}

void expect_trajectory(const Arrangement& setup, const Trajectory& expected) {
  const auto num_steps = std::ssize(expected.losses);
  const Trajectory got = Trainer(world(), setup).train(num_steps, gentle_lr);
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], expected.losses[i], 2e-5 * (1 + expected.losses[i]))
        << name_of(setup) << ", step " << i;
  EXPECT_NEAR(got.norms[0], expected.norms[0], 1e-5 * expected.norms[0]) << name_of(setup);
  EXPECT_NEAR(got.validation_loss, expected.validation_loss, 1e-4) << name_of(setup);
}

class EveryKind : public testing::TestWithParam<TinyKind> {};

TEST_P(EveryKind, HasTheGradientsOfOneRank) {
  const plan::Numbers fp32 = numbers(core::DType::f32, Determinism::off);
  for (const std::int64_t micro_batch : {1, 2, 7}) {
    const std::vector<float> expected =
        Trainer({}, {.numbers = fp32, .kind = GetParam(), .micro_batch = micro_batch}).gradient();
    for (Arrangement setup : meshes(fp32, GetParam())) {
      setup.micro_batch = micro_batch;
      expect_gradient(setup, expected);
    }
  }
}

void expect_gradient_of_short_samples(Arrangement setup) {
  Trainer one({}, setup);
  const std::vector<float> expected = one.gradient(short_samples(one));
  for (Arrangement each : meshes(setup.numbers, setup.kind)) {
    each.adapter = setup.adapter;
    Trainer trainer(world(), each);
    const std::vector<float> got = trainer.gradient(short_samples(trainer));
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_LE(largest_difference(got, expected), 1e-5f * largest(expected)) << name_of(each);
  }
}

TEST_P(EveryKind, HasTheGradientsOfSamplesThatAreShorterThanTheRanks) {
  expect_gradient_of_short_samples(
      {.numbers = numbers(core::DType::f32, Determinism::off), .kind = GetParam()});
}

TEST_P(EveryKind, FollowsTheStepsOfOneRank) {
  const plan::Numbers fp32 = numbers(core::DType::f32, Determinism::off);
  const Trajectory expected =
      Trainer({}, {.numbers = fp32, .kind = GetParam()}).train(8, gentle_lr);
  for (Arrangement setup : meshes(fp32, GetParam())) {
    expect_trajectory(setup, expected);
    setup.blocks = train::Blocks::recomputed;
    expect_trajectory(setup, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryKind,
                         testing::Values(TinyKind::own_head, TinyKind::tied, TinyKind::experts,
                                         TinyKind::fused_experts, TinyKind::chunks, TinyKind::sinks,
                                         TinyKind::memory, TinyKind::mixers, TinyKind::latents),
                         [](const auto& info) {
                           return info.param == TinyKind::own_head  ? "own_head"
                                  : info.param == TinyKind::tied    ? "tied"
                                  : info.param == TinyKind::experts ? "experts"
                                  : info.param == TinyKind::chunks  ? "chunks"
                                  : info.param == TinyKind::sinks   ? "sinks"
                                  : info.param == TinyKind::memory  ? "memory"
                                  : info.param == TinyKind::mixers  ? "mixers"
                                  : info.param == TinyKind::latents ? "latents"
                                                                    : "fused_experts";
                         });

TEST(Noise, OnEmbeddingsIsThatOfOneRank) {
  const plan::Numbers fp32 = numbers(core::DType::f32, Determinism::off);
  // Of samples in rows of their own, and of several that share a row.
  for (const std::int64_t packed : {0, 24}) {
    const Arrangement alone{.numbers = fp32, .packed_positions = packed, .neftune_alpha = 20};
    const std::vector<float> expected = Trainer({}, alone).gradient();
    Arrangement without = alone;
    without.neftune_alpha = 0;
    EXPECT_NE(Trainer({}, without).gradient(), expected);
    for (Arrangement setup : meshes(fp32)) {
      setup.packed_positions = packed;
      setup.neftune_alpha = alone.neftune_alpha;
      const std::vector<float> got = Trainer(world(), setup).gradient();
      EXPECT_LE(largest_difference(got, expected), 1e-5f * largest(expected)) << name_of(setup);
    }
  }
}

/// Adapters in all their parts: dropout, magnitudes, modules trained whole, factors.
std::vector<model::AdapterSettings> adapters() {
  model::AdapterSettings lora;
  lora.name = "lora";
  lora.of<adapters::lora::Settings>().r = 3;
  lora.of<adapters::lora::Settings>().dropout = 0.25;
  model::AdapterSettings dora = lora;
  dora.of<adapters::lora::Settings>().use_dora = true;
  model::AdapterSettings whole = lora;
  whole.target_modules = {"q_proj", "v_proj"};
  whole.modules_to_save = {"embed_tokens", "lm_head"};
  model::AdapterSettings factors;
  factors.name = "ia3";
  factors.target_modules = {"k_proj", "v_proj", "down_proj"};
  model::AdapterSettings vocabulary = lora;
  vocabulary.target_modules = {"embed_tokens", "lm_head", "v_proj"};
  return {lora, dora, whole, factors, vocabulary};
}

/// Those of latents are whole on every rank, which drops inputs of its own tokens.
TEST(Adapters, OfLatentsFollowTheStepsOfOneRank) {
  Arrangement one{.numbers = numbers(core::DType::f32, Determinism::off),
                  .kind = TinyKind::latents};
  for (const bool use_dora : {false, true}) {
    one.adapter.name = "lora";
    one.adapter.of<adapters::lora::Settings>().r = 3;
    one.adapter.of<adapters::lora::Settings>().dropout = 0.25;
    one.adapter.of<adapters::lora::Settings>().use_dora = use_dora;
    const Trajectory expected = Trainer({}, one).train(8, gentle_lr);
    for (Arrangement setup : meshes(one.numbers, one.kind)) {
      setup.adapter = one.adapter;
      expect_trajectory(setup, expected);
    }
  }
}

TEST(Adapters, FollowTheStepsOfOneRank) {
  const plan::Numbers fp32 = numbers(core::DType::f32, Determinism::off);
  for (const model::AdapterSettings& adapter : adapters()) {
    const Trajectory expected =
        Trainer({}, {.numbers = fp32, .adapter = adapter}).train(8, gentle_lr);
    for (Arrangement setup : meshes(fp32)) {
      setup.adapter = adapter;
      expect_trajectory(setup, expected);
    }
  }
}

TEST(Adapters, HaveTheGradientsOfSamplesThatAreShorterThanTheRanks) {
  for (const model::AdapterSettings& adapter : adapters())
    expect_gradient_of_short_samples(
        {.numbers = numbers(core::DType::f32, Determinism::off), .adapter = adapter});
}

TEST(Answers, AreThoseOfOneRank) {
  const std::vector<std::int32_t> prompt = {3, 1, 4};
  const train::Sampling greedy{.max_tokens = 12, .stop = {}};
  for (const TinyKind kind : {TinyKind::own_head, TinyKind::fused_experts, TinyKind::latents}) {
    const plan::Numbers fp32 = numbers(core::DType::f32, Determinism::off);
    const auto expected =
        train::generate(Trainer({}, {.numbers = fp32, .kind = kind}).engine(), prompt, greedy);
    for (const Arrangement& setup : meshes(fp32, kind))
      EXPECT_EQ(train::generate(Trainer(world(), setup).engine(), prompt, greedy), expected)
          << name_of(setup);
  }
}

TEST(Narrow, StaysWithinItsOwnRounding) {
  const Trajectory wide =
      Trainer({}, {.numbers = numbers(core::DType::f32, Determinism::off)}).train(5);
  const plan::Numbers bf16 = numbers(core::DType::bf16, Determinism::off);
  const Trajectory alone = Trainer({}, {.numbers = bf16}).train(5);
  double spread = 0;
  for (std::size_t i = 0; i < 5; ++i)
    spread = std::max(spread, std::abs(alone.losses[i] - wide.losses[i]));
  for (const Arrangement& setup : meshes(bf16)) {
    const Trajectory got = Trainer(world(), setup).train(5);
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_NEAR(got.losses[i], wide.losses[i], 2 * spread + 1e-3) << name_of(setup);
  }
}

/// Rounding is a matter of rows and of matrices, whichever rank has them: ranks that share experts
/// out, or matrices, train as one does, as far as 8 bits let them.
TEST(Narrow, LearnsWithExpertsOfEightBits) {
  plan::Numbers fp8 = numbers(core::DType::bf16, Determinism::off);
  const Trajectory wide = Trainer({}, {.numbers = fp8, .kind = TinyKind::wide_experts}).train(40);
  fp8.fp8 = model::Fp8Recipe{};
  const Arrangement setup = {.numbers = fp8, .kind = TinyKind::wide_experts};
  const Trajectory alone = Trainer({}, setup).train(40);
  EXPECT_NE(alone.losses, wide.losses);
  EXPECT_LT(alone.losses.back(), 0.8 * alone.losses.front());
  EXPECT_LT(alone.validation_loss, wide.validation_loss + 0.3);
  const double first_spread = std::abs(alone.losses[0] - wide.losses[0]);
  for (const Arrangement& of : meshes(fp8, TinyKind::wide_experts)) {
    const Trajectory got = Trainer(world(), of).train(40);
    EXPECT_NEAR(got.losses[0], alone.losses[0], first_spread + 1e-3) << name_of(of);
    EXPECT_LT(got.losses.back(), 0.8 * got.losses.front()) << name_of(of);
    EXPECT_NEAR(got.validation_loss, alone.validation_loss, 0.3) << name_of(of);
  }
}

TEST(Run, GivesTheSameBitsOnTheSameMesh) {
  for (const auto determinism : {Determinism::run, Determinism::topology}) {
    for (const Arrangement& setup : meshes(numbers(core::DType::bf16, determinism))) {
      const Trajectory first = Trainer(world(), setup).train(5);
      EXPECT_TRUE(Trainer(world(), setup).train(5) == first) << name_of(setup);
    }
  }
}

TEST(Copies, AreTheSameAfterEachStep) {
  for (const Arrangement& setup : meshes(numbers(core::DType::bf16, Determinism::off))) {
    Trainer trainer(world(), setup);
    for (std::int64_t i = 0; i < 5; ++i) {
      trainer.step(i);
      EXPECT_NO_THROW(
          train::require_equal_replicas(trainer.shards(), trainer.optimizer(), trainer.world(), i))
          << name_of(setup);
    }
  }
}

/// The other units are still compared: groups of copies and of tp cross each other.
void expect_named(int dp_shard, int unit, const std::string& name) {
  Trainer trainer(world(), {.dp_shard = dp_shard,
                            .numbers = numbers(core::DType::f32, Determinism::off),
                            .parts = {.tp = 2}});
  if (world().rank() == 1) trainer.shards().master(unit)[0] += 1e-6;
  try {
    train::require_equal_replicas(trainer.shards(), trainer.optimizer(), trainer.world(), 7);
    ADD_FAILURE() << "nothing thrown";
  } catch (const comm::AgreedError& thrown) {
    EXPECT_EQ(thrown.kind(), core::ErrorKind::numbers);
    EXPECT_NE(std::string(thrown.what()).find(name), std::string::npos) << thrown.what();
  }
}

TEST(Copies, ThatTpRanksHoldAndThatDifferAreNamed) {
  if (world().size() % 2 != 0) GTEST_SKIP() << "two ranks share matrices";
  // The last unit of this model begins with the final norm, the second with a norm too.
  expect_named(world().size() / 2, 3, "model.norm.weight");
  expect_named(1, 1, "input_layernorm.weight");
}

/// The last element of a rank's shard that is of a row which its neighbour in tp holds as well, and
/// of which the shard has a part; -1: there is none.
std::pair<std::int64_t, std::string> last_in_common(Trainer& trainer, int unit) {
  std::pair<std::int64_t, std::string> last = {-1, ""};
  shard::ModelShards& shards = trainer.shards();
  for (const plan::ShardSlice& slice : shards.map().slices(unit, shards.shard_of(unit))) {
    const model::Parameter& row = shards.table().row(slice.row);
    if (row.held && row.held->num_holders > 1 && slice.count < row.count())
      last = {slice.shard_offset + slice.count - 1, row.name};
  }
  return last;
}

/// Units of which a change of that element is found, and its undoing.
int num_named(Trainer& trainer) {
  const auto compare = [&] {
    train::require_equal_replicas(trainer.shards(), trainer.optimizer(), trainer.world(), 7);
  };
  EXPECT_NO_THROW(compare());
  const int last_rank = world().size() - 1;
  int num = 0;
  for (const int unit : trainer.shards().trained_units()) {
    const auto [element, row] = last_in_common(trainer, unit);
    const bool has_one =
        world().all_reduce(std::int64_t{world().rank() == last_rank && element >= 0},
                           comm::Reduce::max) != 0;
    if (!has_one) continue;
    const at::Tensor master = trainer.shards().master(unit), before = master.clone();
    if (world().rank() == last_rank) master[element] += 0.25;
    EXPECT_THROW(compare(), comm::AgreedError) << row << " in unit " << unit;
    master.copy_(before);
    EXPECT_NO_THROW(compare()) << "as it was";
    ++num;
  }
  return num;
}

/// Experts of five channels are not halved evenly, so that of what LoRA puts on their inputs and
/// both ranks hold, the shards of one end elsewhere than those of the other.
TEST(Copies, ThatTpRanksCutDifferentlyAreComparedAsAWhole) {
  if (world().size() != 4) GTEST_SKIP() << "two ranks share matrices, and each two of them shards";
  Arrangement setup = {
      .dp_shard = 2, .numbers = numbers(core::DType::f32, Determinism::off), .parts = {.tp = 2}};
  setup.adapter.name = "lora";
  setup.adapter.target_modules = {"lm_head"};
  Trainer trainer(world(), setup);
  EXPECT_EQ(num_named(trainer), 1);
}

}  // namespace
}  // namespace finetune::tests::mesh_test
