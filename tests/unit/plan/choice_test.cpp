// SPDX-License-Identifier: Apache-2.0
#include "plan/choice.hpp"

#include <gtest/gtest.h>

#include <set>

#include "core/error.hpp"
#include "core/text.hpp"
#include "plan/fits.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::choice_test {
namespace {

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
  PlanInput asked = open_request(tests::two_blocks, 1, 2);
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

TEST(AutomaticSharing, LeavesRoomForExpertsThatAreChosenMoreOften) {
  const PlanInput request = open_8b();
  const tests::DecoderTable table(request.architecture);
  Plan plan = make(request, table.table());
  plan.memory = {{.category = Category::weights, .name = "all", .bytes = 80 * gib}};
  const auto leaves = [&](std::int64_t uneven_bytes, std::int64_t available_bytes) {
    plan.uneven_router_bytes = uneven_bytes;
    Site site;
    site.available_bytes = available_bytes;
    return leaves_room(plan, site);
  };
  EXPECT_TRUE(leaves(0, 89 * gib));
  EXPECT_FALSE(leaves(0, 88 * gib));
  EXPECT_TRUE(leaves(18 * gib, 89 * gib));
  EXPECT_FALSE(leaves(19 * gib, 89 * gib));
  EXPECT_TRUE(leaves(100 * gib, 0)) << "where nobody knows";
}

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
    if (other.is_comfortable) {
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
  run.request.max_seq_length *= 8;
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
  PlanInput request = open_request(tests::two_blocks, 1, 4);
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
  PlanInput request = open_request(tests::two_blocks, 3, 8);
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
    PlanInput r = open_request(tests::two_blocks, 2, 2);
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
