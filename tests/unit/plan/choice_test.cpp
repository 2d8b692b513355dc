// SPDX-License-Identifier: Apache-2.0
#include "plan/choice.hpp"

#include <gtest/gtest.h>

#include <set>

#include "core/error.hpp"
#include "core/text.hpp"
#include "plan/fits.hpp"
#include "plan/machine/machine_file.hpp"
#include "support/folders.hpp"
#include "support/optimizers.hpp"
#include "unit/plan/decoder.hpp"
#include "unit/plan/small_model.hpp"

namespace finetune::plan::choice_test {
namespace {

constexpr tests::Size llama_8b = {32, 4096, 32, 8, 128, 14336, 128256};
constexpr tests::Size small = {2, 64, 4, 2, 16, 96, 1000};
constexpr std::int64_t gib = std::int64_t{1} << 30;

Machine shipped(const std::string& name) {
  return read_machine(name, tests::source_folder() / "inputs/machines");
}

/// A run that leaves everything to the plan.
PlanInput open_request(const tests::Size& size, std::int64_t nodes, std::int64_t of_node) {
  PlanInput request = tests::adamw_request();
  request.architecture = tests::decoder(size);
  request.on_gpu = true;
  request.ranks = tests::ranks_on_nodes(nodes * of_node, of_node);
  request.chooses_activations = true;
  request.max_seq_length = 2048;
  request.global_batch = request.ranks.world_size;
  return request;
}

PlanInput open_8b() {
  return open_request(llama_8b, 2, 8);
}

/// Of two nodes of eight H100.
Choice choose_8b(const tests::Training& training, std::int64_t available_bytes) {
  const PlanInput request = open_8b();
  const tests::DecoderTable table(request.architecture, training);
  return choose(request, table.table(), {shipped("h100-8"), Passes::composed, available_bytes});
}

TEST(AutomaticSharding, IsTheFastestOfWhatFitsByThePlansOwnComparison) {
  for (const tests::Training& training : {tests::Training{}, tests::Training{.rank = 16}}) {
    const Choice choice = choose_8b(training, 75 * gib);
    ASSERT_GT(choice.strategies.size(), 2U);
    for (const Strategy& other : choice.strategies) {
      if (!other.fits) continue;
      EXPECT_LE(choice.strategies.front().time.step_s, 1.01 * other.time.step_s) << other.name();
    }
    EXPECT_NE(choice.strategies.front().name(), "HYBRID_SHARD") << "what it was by name alone";
    EXPECT_EQ(choice.request.parallel.sharding, sharding_named(choice.strategies.front().name()));
  }
}

TEST(AutomaticSharding, OfAnAdapterThatFitsOnEachRankReplicatesTheModel) {
  EXPECT_EQ(choose_8b({.rank = 16}, 75 * gib).request.parallel.sharding, Sharding::no_shard);
}

TEST(AutomaticSharding, TakesOnlyWhatFitsAndLeavesATenthFree) {
  const Choice rich = choose_8b({}, 75 * gib);
  const std::int64_t needs = rich.strategies.front().memory_bytes;
  for (const std::int64_t there : {needs, needs / 10 * 9}) {
    const Choice poor = choose_8b({}, there);
    EXPECT_LE(poor.strategies.front().memory_bytes, there / 10 * 9 + 10);
    EXPECT_GE(poor.strategies.front().time.step_s, rich.strategies.front().time.step_s);
  }
}

TEST(AutomaticSharding, WhereNothingFitsIsWhatNeedsLeast) {
  const Choice choice = choose_8b({}, gib);
  for (const Strategy& other : choice.strategies)
    EXPECT_LE(choice.strategies.front().memory_bytes, other.memory_bytes);
  EXPECT_EQ(choice.request.activation_checkpointing, ActivationCheckpointing::full);
}

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
    // The other ways that fit are no faster.
    for (const WayToKeep& way : choice.ways) {
      if (way.fits) {
        EXPECT_GE(way.step_s, choice.strategies.front().time.step_s * 0.999);
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
        "of 32 blocks whole", "(taken)", "nine tenths of the memory"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
}

TEST(AutomaticSharding, IsNotAskedWhereTheDeckSaysGroups) {
  PlanInput request = open_8b();
  request.parallel.dp_shard = 4;
  EXPECT_FALSE(is_sharding_open(request));
  const tests::DecoderTable table(request.architecture);
  const Choice choice =
      choose(request, table.table(), {shipped("h100-8"), Passes::composed, 75 * gib});
  EXPECT_EQ(choice.strategies.front().mesh.size(groups::fsdp), 4);
  EXPECT_EQ(choice.strategies.size(), 1U);
}

TEST(AutomaticSharding, StaysOpenWhereTheMemoryIsNotKnown) {
  const Choice choice = choose_8b({}, 0);
  EXPECT_TRUE(choice.strategies.empty());
  EXPECT_FALSE(choice.request.parallel.sharding);
  EXPECT_EQ(choice.request.activation_checkpointing, ActivationCheckpointing::none);
}

TEST(AutomaticSharding, SaysTheWinnerAndTheRunnerUp) {
  const Site site = {shipped("h100-8"), Passes::composed, 75 * gib};
  const PlanInput asked = open_8b();
  const tests::DecoderTable table(asked.architecture);
  const Choice choice = choose(asked, table.table(), site);
  const std::string text = to_string(choice, asked, site);
  for (const std::string& words :
       {choice.strategies[0].name(), choice.strategies[1].name(), std::string("(taken)"),
        std::string("per step"), std::string("none: nothing is recomputed")})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
}

TEST(AutomaticSharding, OfRanksThatShareAllMatricesHasNothingToChoose) {
  PlanInput asked = open_request(small, 1, 2);
  const auto text = [&] {
    const tests::DecoderTable table(asked.architecture);
    const Site site = {shipped("h100-8"), Passes::composed, 75 * gib};
    return to_string(choose(asked, table.table(), site), asked, site);
  };
  asked.parallel.tp = 2;
  EXPECT_NE(text().find("FULL_SHARD tp 2: there is nothing to choose for one group of 2 ranks"),
            std::string::npos)
      << text();
  asked.parallel.tp = 1;
  asked.ranks = tests::ranks_on_nodes(1, 1);
  EXPECT_NE(text().find("FULL_SHARD: there is nothing to choose on one rank"), std::string::npos);
}

TEST(AutomaticActivations, AreKeptAsFarAsTheyFit) {
  PlanInput request = open_request(small, 1, 1);
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

/// LoRA of 131,072 tokens on two nodes of eight H100.
struct LongSequence {
  PlanInput request = open_8b();
  tests::DecoderTable table{request.architecture, {.rank = 8}};
  Site site{shipped("h100-8"), Passes::composed, 75 * gib};

  LongSequence() { request.max_seq_length = 131072; }
  Choice choose() const { return plan::choose(request, table.table(), site); }
};

TEST(AutomaticSharing, IsOfWhatDoesNotFitOtherwise) {
  const LongSequence run;
  const Choice choice = run.choose();
  const ParallelSettings& parallel = choice.request.parallel;
  EXPECT_GT(parallel.num_tp() * parallel.num_cp(), 1);
  EXPECT_EQ(parallel.num_ep(), 1) << "there are no experts";
  EXPECT_LE(make(choice.request, run.table.table()).memory_bytes(), 75 * gib);
  ASSERT_TRUE(choice.without_sharing);
  EXPECT_FALSE(choice.without_sharing->fits);
  for (const Strategy& other : choice.strategies)
    if (other.fits && other.memory_bytes <= comfortable_bytes(run.site)) {
      EXPECT_LE(choice.strategies.front().time.step_s, other.time.step_s) << other.name();
    }
  const std::string text = to_string(choice, run.request, run.site);
  EXPECT_NE(text.find("ranks share more than shards of weights, because "), std::string::npos);
  EXPECT_NE(text.find(core::human_bytes(choice.without_sharing->memory_bytes)), std::string::npos);
}

TEST(AutomaticSharing, IsNotForSpeed) {
  const Choice choice = choose_8b({}, 75 * gib);
  EXPECT_FALSE(choice.without_sharing);
  const ParallelSettings& parallel = choice.request.parallel;
  EXPECT_EQ(parallel.num_tp() * parallel.num_cp() * parallel.num_ep(), 1);
}

TEST(AutomaticSharing, LeavesWhatTheDeckSays) {
  LongSequence run;
  run.request.parallel.tp = 1;
  EXPECT_EQ(run.choose().request.parallel.tp, 1);
  EXPECT_GT(run.choose().request.parallel.cp, 1);
  run.request.parallel.cp = 1;
  const Choice choice = run.choose();
  EXPECT_FALSE(choice.without_sharing);
  EXPECT_FALSE(choice.strategies.front().fits);
}

TEST(AutomaticSharing, OfExpertsIsForModelsThatHaveSome) {
  PlanInput request = open_8b();
  EXPECT_FALSE(sharing_axes(request, tests::DecoderTable(request.architecture).table()).ep);
  request.architecture.experts = {.num = 16, .top_k = 2, .d_ff = 512};
  request.architecture.layers.assign(32, {.has_experts = true});
  const tests::DecoderTable experts(request.architecture);
  EXPECT_TRUE(sharing_axes(request, experts.table()).ep);
  request.ranks = tests::ranks_on_nodes(1, 1);
  EXPECT_FALSE(sharing_axes(request, experts.table()).any()) << "one rank has nobody to share with";
}

/// One that computes, waits and updates for so many milliseconds.
Strategy of_ms(Sharding sharding, double computes, double waits, double updates) {
  Strategy strategy;
  strategy.mesh.sharding = sharding;
  strategy.time.exposed_s = waits / 1e3;
  strategy.time.optimizer_s = updates / 1e3;
  strategy.time.step_s = (computes + waits + updates) / 1e3;
  return strategy;
}

TEST(Reason, NamesWhatMakesTheDifferenceWithNumbersThatDiffer) {
  const Strategy best = of_ms(Sharding::full_shard, 40, 6.11, 3);
  const auto why = [&](double computes, double waits, double updates) {
    return reason({best, of_ms(Sharding::no_shard, computes, waits, updates)});
  };
  EXPECT_EQ(why(40, 16.11, 3),
            "FULL_SHARD is fastest: NO_SHARD takes 10.0 ms per step more, because it waits 16.1 "
            "ms instead of 6.1 ms for communication");
  EXPECT_EQ(why(40, 6.11, 5),
            "FULL_SHARD is fastest: NO_SHARD takes 2.0 ms per step more, because each rank updates "
            "more weights: 5.0 ms instead of 3.0 ms");
  EXPECT_EQ(why(42, 6.13, 3),
            "FULL_SHARD is fastest: NO_SHARD takes 2.0 ms per step more, because its ranks compute "
            "for 42.0 ms instead of 40.0 ms");
  EXPECT_NE(why(40.34, 6.11 + 0.35, 3).find("6.5 ms instead of 6.1 ms"), std::string::npos);
  const Strategy quick = of_ms(Sharding::full_shard, 1, 0.612, 0);
  EXPECT_NE(reason({quick, of_ms(Sharding::no_shard, 1, 0.638, 0)}).find("0.64 ms instead of 0.61"),
            std::string::npos);
  EXPECT_NE(why(40, 6.2, 3).find("the same time within 1 %"), std::string::npos);
}

TEST(Meshes, ThatARunWouldRefuseAreNeitherComparedNorSuggested) {
  PlanInput request = open_request(small, 1, 4);
  request.architecture.experts = {.num = 4, .top_k = 2, .d_ff = 48};
  const tests::DecoderTable decoder(request.architecture);
  model::ParameterTable table = decoder.table();
  // Two experts of 80 numbers are two and a half blocks, all four five.
  table.rows.push_back({.name = "experts.down",
                        .shape = {4, 10, 8},
                        .trainable = false,
                        .of_experts = model::OfExperts{0, 4, 4},
                        .packing = {.kind = model::Packing::Kind::nf4}});
  const Site site = {shipped("h100-8"), Passes::composed, 1};
  const auto meshes = compare_meshes(request, table, site, {true, true, true});
  ASSERT_FALSE(meshes.empty());
  for (const Strategy& mesh : meshes) {
    EXPECT_NO_THROW(make(mesh.request, table)) << mesh.name();
    EXPECT_EQ(mesh.mesh.axes[Axis::tp] * mesh.mesh.ep, 1) << mesh.name();
  }
  EXPECT_NO_THROW(choose(request, table, site));
  for (const Remedy& remedy : remedies(request, table, 1))
    EXPECT_EQ(remedy.change.find("parallel.tp") + remedy.change.find("parallel.ep"),
              2 * std::string::npos)
        << remedy.change;
}

TEST(Meshes, OfHybridShardFillNodesWithWholeCopies) {
  PlanInput request = open_request(small, 3, 8);
  request.parallel.cp = 3;
  request.max_seq_length = 3072;
  const tests::DecoderTable table(request.architecture);
  const Site site = {shipped("h100-8"), Passes::composed, 75 * gib};
  for (const Strategy& strategy : compare(request, table.table(), site))
    EXPECT_EQ(strategy.name().find("HYBRID_SHARD cp"), std::string::npos) << strategy.name();
}

TEST(Meshes, ThatFitComeFirstTheFastestOfThemFirst) {
  const LongSequence run;
  const auto meshes = compare_meshes(run.request, run.table.table(), run.site, {true, true, true});
  ASSERT_GT(meshes.size(), 3u);
  EXPECT_TRUE(meshes.front().fits);
  std::set<std::string> names;
  for (std::size_t i = 0; i < meshes.size(); ++i) {
    EXPECT_TRUE(names.insert(meshes[i].name()).second) << meshes[i].name() << " twice";
    EXPECT_LE(meshes[i].mesh.axes[Axis::tp], 8);
    EXPECT_EQ(meshes[i].mesh.ep, 1);
    if (i == 0) continue;
    const Strategy &before = meshes[i - 1], &now = meshes[i];
    EXPECT_TRUE(before.fits || !now.fits);
    if (before.fits == now.fits) {
      EXPECT_LE(before.time.step_s, now.time.step_s);
    }
  }
}

TEST(UsualRates, OfGpusAreThoseOfTheA100Machine) {
  const Machine usual = usual_machine(true, 8), a100 = shipped("a100-80-8");
  EXPECT_EQ(usual.bf16_tflops, a100.bf16_tflops);
  EXPECT_EQ(usual.fp32_tflops, a100.fp32_tflops);
  EXPECT_EQ(usual.memory_gb_per_s, a100.memory_gb_per_s);
  EXPECT_EQ(usual.intra_gb_per_s, a100.intra_gb_per_s);
  EXPECT_EQ(usual.inter_gb_per_s, a100.inter_gb_per_s);
  EXPECT_EQ(usual.product_half_size, a100.product_half_size);
}

TEST(UsualRates, FillWhatAMeasuredMachineLacks) {
  Machine machine;
  machine.cores_per_node = 4;
  machine.fp32_tflops = 0.5;
  const PlanInput request = [] {
    PlanInput r = open_request(small, 2, 2);
    r.on_gpu = false;
    return r;
  }();
  EXPECT_FALSE(missing_rates(machine, request).empty());
  const Machine filled = with_usual_rates(machine, false, 2);
  EXPECT_TRUE(missing_rates(filled, request).empty());
  EXPECT_EQ(filled.fp32_tflops, 0.5);
  EXPECT_EQ(filled.gpus_per_node, 0);
}

}  // namespace
}  // namespace finetune::plan::choice_test
