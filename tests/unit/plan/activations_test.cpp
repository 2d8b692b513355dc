// SPDX-License-Identifier: Apache-2.0
// What the plan recomputes where activations do not fit.
#include "plan/time/activations.hpp"

#include <gtest/gtest.h>

#include <set>

#include "unit/plan/requests.hpp"

namespace finetune::plan::activations_test {
namespace {

std::int64_t bytes_with(const Choice& choice, ActivationCheckpointing mode, std::int64_t blocks) {
  PlanInput request = choice.request;
  request.activation_checkpointing = mode;
  request.recomputed_blocks = blocks;
  const tests::DecoderTable table(request.architecture);
  return make(request, table.table()).memory_bytes();
}

// Between what nothing needs that is recomputed and what whole blocks leave.
TEST(AutomaticRecomputation, ComputesAsFewBlocksAgainAsFit) {
  const Choice rich = choose_8b({}, 75 * gib);
  ASSERT_EQ(rich.request.recomputed_blocks, 0);
  const std::int64_t most = bytes_with(rich, ActivationCheckpointing::none, 0);
  const std::int64_t least = bytes_with(rich, ActivationCheckpointing::selective, 31);
  ASSERT_LT(least, most);
  int num_partial = 0;
  for (int part = 1; part < 8; ++part) {
    const std::int64_t limit = least + (most - least) / 8 * part;
    // A tenth stays free.
    const Choice choice = choose_8b({}, limit / 9 * 10);
    const PlanInput& taken = choice.request;
    EXPECT_LE(choice.strategies.front().memory_bytes, limit);
    if (taken.recomputed_blocks == 0) continue;
    ++num_partial;
    EXPECT_GT(bytes_with(choice, taken.activation_checkpointing, taken.recomputed_blocks - 1),
              limit);
    // The other ways that fit are no faster, or offload and are not clearly so.
    const double clearly = taken.offloaded_blocks > 0 ? 1 : 0.98;
    for (const WayToKeep& way : choice.ways) {
      if (way.fits) {
        EXPECT_GE(way.step_s, choice.strategies.front().time.step_s *
                                  (way.offloaded_blocks > 0 ? clearly : 1) * 0.999);
      }
    }
  }
  EXPECT_GE(num_partial, 3);
}

TEST(AutomaticRecomputation, ShowsTheOtherWays) {
  const std::int64_t most = choose_8b({}, 75 * gib).strategies.front().memory_bytes;
  const PlanInput asked = open_8b();
  const Site site = {shipped("h100-8"), Passes::composed, most / 10 * 9};
  const tests::DecoderTable table(asked.architecture);
  const std::string text = to_string(choose(asked, table.table(), site), asked, site);
  for (const char* words :
       {"activation_checkpointing   none ", "\n                             full ",
        "of 32 blocks whole", "(taken)", "(does not fit)"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
}

TEST(AutomaticActivations, AreKeptAsFarAsTheyFit) {
  PlanInput request = open_request(tests::two_blocks, 1, 1);
  request.on_gpu = false;
  request.micro_batch = request.global_batch = 64;
  const tests::DecoderTable table(request.architecture);
  const auto bytes = [&](ActivationCheckpointing mode) {
    PlanInput fixed = request;
    fixed.activation_checkpointing = mode;
    return make(fixed, table.table()).memory_bytes();
  };
  const auto chosen = [&](std::int64_t there) {
    return choose(request, table.table(), {usual_machine(false, 1), Passes::fused, there}).request;
  };
  using enum ActivationCheckpointing;
  ASSERT_LT(bytes(full), bytes(selective));
  for (const ActivationCheckpointing mode : {none, selective, full}) {
    const PlanInput fitting = chosen(bytes(mode) * 10 / 9 + 10);
    EXPECT_LE(make(fitting, table.table()).memory_bytes(), bytes(mode));
    EXPECT_EQ(fitting.activation_checkpointing == none && fitting.recomputed_blocks == 0,
              mode == none);
    // It fits, but only just.
    const PlanInput next = chosen(bytes(mode) * 10 / 9 - 10);
    EXPECT_FALSE(next.activation_checkpointing == none && next.recomputed_blocks == 0);
  }
  EXPECT_EQ(chosen(1).activation_checkpointing, full) << "whether it fits is asked later";
}

TEST(AutomaticActivations, AreChosenForEachStrategyOfTheComparison) {
  const Choice rich = choose_8b({}, 75 * gib);
  // Sharded weights leave room to keep activations that replicated ones do not.
  const auto mode_of = [&](const std::string& name) {
    for (const Strategy& strategy : rich.strategies)
      if (strategy.name() == name) return strategy.request.activation_checkpointing;
    return ActivationCheckpointing::selective;
  };
  EXPECT_EQ(mode_of("FULL_SHARD"), ActivationCheckpointing::none);
  EXPECT_EQ(mode_of("NO_SHARD"), ActivationCheckpointing::full);
}

TEST(AutomaticActivations, LeaveWhatTheDeckSays) {
  PlanInput request = open_8b();
  request.chooses_activations = false;
  request.activation_checkpointing = ActivationCheckpointing::selective;
  const tests::DecoderTable table(request.architecture);
  const Site site = {shipped("h100-8"), Passes::composed, 75 * gib};
  EXPECT_EQ(choose(request, table.table(), site).request.activation_checkpointing,
            ActivationCheckpointing::selective);
}

// Longer parts of sequences are not faster where they leave no room for activations.
TEST(Meshes, GoOnToShorterPartsWhereBlocksAreRecomputed) {
  LongSequence run;
  run.request.max_seq_length = 16384;
  run.request.parallel.sharding = Sharding::full_shard;
  run.request.parallel.tp = run.request.parallel.ep = 1;
  PlanInput kept = run.request;
  kept.parallel.cp = 2;
  // One block does not fit.
  run.site.available_bytes = make(kept, run.table.table()).memory_bytes() * 10 / 9 - gib / 16;
  std::set<std::int64_t> compared;
  std::int64_t num_recomputed = 0;
  for (const Strategy& strategy :
       compare_meshes(run.request, run.table.table(), run.site, {false, true, false})) {
    compared.insert(strategy.request.parallel.num_cp());
    if (strategy.request.parallel.num_cp() != 2) continue;
    EXPECT_EQ(strategy.request.activation_checkpointing, ActivationCheckpointing::none);
    num_recomputed = strategy.request.recomputed_blocks;
  }
  EXPECT_GT(num_recomputed, 0);
  EXPECT_TRUE(compared.contains(4));
}

TEST(Meshes, HaveTheOneThatTheDeckSays) {
  LongSequence run;
  run.request.parallel.cp = 16;
  bool is_there = false;
  for (const Strategy& strategy :
       compare_meshes(run.request, run.table.table(), run.site, {true, true, true}))
    is_there = is_there || (strategy.request.parallel.num_cp() == 16 &&
                            strategy.request.parallel.num_tp() == 1);
  EXPECT_TRUE(is_there);
}

}  // namespace
}  // namespace finetune::plan::activations_test
