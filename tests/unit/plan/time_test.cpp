// SPDX-License-Identifier: Apache-2.0
#include "plan/time/time.hpp"

#include <gtest/gtest.h>

#include "model/cost/cost_ops.hpp"
#include "plan/machine/detail/collectives.hpp"
#include "plan/time/detail/timeline.hpp"
#include "plan/time/detail/work.hpp"
#include "plan/time/strategies.hpp"
#include "support/optimizers.hpp"
#include "unit/plan/decoder.hpp"
#include "unit/plan/small_model.hpp"

namespace finetune::plan::time_test {
namespace {

using model::visible_tokens;
using tests::DecoderTable;
using tests::ranks_on_nodes;
using tests::round_machine;
using tests::Training;

/// Two blocks; widths that differ, so that none can be taken for another.
constexpr tests::Size small = {2, 64, 4, 2, 16, 96, 1000};

PlanInput request(std::int64_t ranks, const std::string& sharding = "FULL_SHARD") {
  PlanInput request = tests::adamw_request();
  request.architecture = tests::decoder(small);
  request.parallel.sharding = sharding_named(sharding);
  request.on_gpu = true;
  request.ranks = ranks_on_nodes(ranks, 2);
  request.micro_batch = 2;
  request.max_seq_length = 32;
  request.global_batch = 2 * ranks;
  return request;
}

MicroBatchWork work(const PlanInput& r, const Training& training = {}) {
  const DecoderTable table(r.architecture, training);
  return plan_work(r, table.table(), Rates(round_machine(), r.numbers.compute), Passes::fused);
}

/// Weights of a block's matrices: q and o, k and v, gate, up and down.
constexpr double block_weights = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96;
constexpr double tokens = 64, head_weights = 64000;
/// Each token sees 16.5 on average; 64 channels of queries.
constexpr double attention_forward = 4 * 64 * 16.5 * 64;

TEST(PlannedWork, IsSixFlopsAWeightAndTokenAndAttention) {
  const MicroBatchWork all = work(request(1));
  EXPECT_DOUBLE_EQ(all.blocks[0].forward.flops, 2 * tokens * block_weights + attention_forward);
  EXPECT_DOUBLE_EQ(all.blocks[0].backward.flops,
                   4 * tokens * block_weights + 2.5 * attention_forward);
  EXPECT_DOUBLE_EQ(all.head.forward.flops + all.head.backward.flops, 6 * tokens * head_weights);
  EXPECT_DOUBLE_EQ(all.model_flops(),
                   6 * tokens * (2 * block_weights + head_weights) + 2 * 3.5 * attention_forward);
}

TEST(PlannedWork, IsFourFlopsWhereAWeightIsFrozenAndSixForTheAdapter) {
  const MicroBatchWork all = work(request(1), {.rank = 4});
  // A has rank x inputs: of q k v o gate up, of down. B has outputs x rank: in the same order.
  const double adapter = 4 * (6 * 64 + 96 + 64 + 32 + 32 + 64 + 96 + 96 + 64);
  EXPECT_DOUBLE_EQ(all.blocks[0].forward.flops + all.blocks[0].backward.flops,
                   tokens * (4 * block_weights + 6 * adapter) + 3.5 * attention_forward);
  EXPECT_DOUBLE_EQ(all.head.forward.flops + all.head.backward.flops, 4 * tokens * head_weights);
}

TEST(PlannedWork, OfPackedWeightsUnpacksThemForwardAndBackward) {
  const Work dense = work(request(1), {.rank = 4}).total();
  const Work packed = work(request(1), {4, false, model::Packing::Kind::nf4}).total();
  EXPECT_DOUBLE_EQ(packed.flops, dense.flops);
  EXPECT_NEAR(packed.memory_s - dense.memory_s, 2 * 2 * block_weights * 2.5 / 1e12, 1e-18);
}

TEST(PlannedWork, OfEightBitsIsDoneAtTheirRateButForGradientsOfWeights) {
  PlanInput r = request(1);
  const DecoderTable table(r.architecture);
  Machine machine = round_machine();
  machine.memory_gb_per_s = 1e9;  // products alone take time
  const auto products_s = [&] {
    const StageWork block =
        plan_work(r, table.table(), Rates(machine, r.numbers.compute), Passes::fused).blocks[0];
    return block.forward.products_s + block.backward.products_s;
  };
  const double in_bf16 = products_s();
  EXPECT_NEAR(in_bf16, 6 * tokens * block_weights / 1e12, 1e-12 * in_bf16);
  r.numbers.fp8 = model::Fp8Recipe{};
  EXPECT_DOUBLE_EQ(products_s(), in_bf16) << "a machine that says nothing of them";
  machine.fp8_tflops = 4;
  EXPECT_NEAR(products_s(), in_bf16 / 3 * (1 + 2 / 4.0), 1e-9 * in_bf16);
  r.numbers.fp8->scaling = model::Fp8Scaling::block;
  EXPECT_DOUBLE_EQ(products_s(), in_bf16) << "sizes that blocks do not divide";
}

TEST(PlannedWork, RoundsOperandsToEightBitsInPassesOverMemory) {
  PlanInput r = request(1);
  const auto memory_s = [&] {
    const StageWork block = work(r).blocks[0];
    return block.forward.memory_s + block.backward.memory_s;
  };
  const double before = memory_s();
  r.numbers.fp8 = model::Fp8Recipe{};
  // Read twice and written once: inputs and matrices forward, gradients and matrices backward.
  const double inputs = 64 + 64 + 64 + 96, gradients = 64 + 2 * 32 + 64 + 2 * 96 + 64;
  EXPECT_NEAR(memory_s() - before, 5 * (tokens * (inputs + gradients) + 2 * block_weights) / 1e12,
              1e-15);
}

TEST(PlannedWork, ComputesBlocksAgainWithFullCheckpointing) {
  PlanInput r = request(1);
  r.activation_checkpointing = ActivationCheckpointing::full;
  const MicroBatchWork all = work(r);
  EXPECT_DOUBLE_EQ(all.blocks[1].again.flops, all.blocks[1].forward.flops);
  EXPECT_DOUBLE_EQ(all.model_flops(), work(request(1)).model_flops()) << "MFU counts it once";
  r.activation_checkpointing = ActivationCheckpointing::selective;
  EXPECT_EQ(work(r).blocks[1].again.flops, 0);
  EXPECT_GT(work(r).blocks[1].again.memory_s, 0);
}

TEST(PlannedWork, CountsTheExpertsThatATokenTakes) {
  PlanInput r = request(1);
  r.architecture.experts = {.num = 8, .top_k = 2, .d_ff = 48};
  r.architecture.layers = {{.has_experts = true}, {}};
  DecoderTable table(r.architecture);
  const MicroBatchWork all =
      plan_work(r, table.table(), Rates(round_machine(), r.numbers.compute), Passes::fused);
  // The table's gate, up and down are those of a shared expert without width here: only q k v o.
  const double attention_weights = 2 * 64 * 64 + 2 * 64 * 32;
  const double experts = 2 * 3 * 64 * 48, router = 64 * 8;
  EXPECT_NEAR(all.blocks[0].forward.flops,
              2 * tokens * (attention_weights + experts + router) + attention_forward,
              2 * tokens * 3 * 64 * 96 + 1);
}

TEST(PlannedWork, ATokenSeesHalfOfAllItsWindowOrItsChunk) {
  EXPECT_DOUBLE_EQ(visible_tokens({}, 100), 50.5);
  EXPECT_DOUBLE_EQ(visible_tokens({.window = 100}, 100), 50.5);
  EXPECT_DOUBLE_EQ(visible_tokens({.window = 1}, 100), 1);
  EXPECT_DOUBLE_EQ(visible_tokens({.window = 2}, 4), (1 + 2 + 2 + 2) / 4.0);
  EXPECT_DOUBLE_EQ(visible_tokens({.chunk = 10}, 100), 5.5);
}

TimePlan time_of(const PlanInput& r, const Machine& machine = round_machine(),
                 const Training& training = {}) {
  const DecoderTable table(r.architecture, training);
  return plan_time(make(r, table.table()), r, table.table(), machine, Passes::fused);
}

TEST(PlannedTime, AddsUpToTheStep) {
  for (const std::int64_t ranks : {1, 2, 4, 6}) {
    const TimePlan t = time_of(request(ranks));
    EXPECT_NEAR(
        t.products_s + t.attention_s + t.memory_s + t.program_s + t.exposed_s + t.optimizer_s,
        t.step_s, 1e-9 * t.step_s);
    EXPECT_NEAR(t.tokens_per_s, static_cast<double>(ranks * 64) / t.step_s, 1e-6 * t.tokens_per_s);
    EXPECT_NEAR(t.mfu, work(request(1)).model_flops() / t.step_s / 2e12, 1e-9);
  }
}

TEST(PlannedTime, OneRankHasNoCommunication) {
  for (const char* sharding : {"FULL_SHARD", "NO_SHARD"}) {
    const TimePlan t = time_of(request(1, sharding));
    EXPECT_EQ(t.exposed_s, 0);
    EXPECT_EQ(t.communication_s, 0);
    EXPECT_EQ(t.sent_by_node_bytes, 0);
  }
}

TEST(PlannedTime, GrowsAsLinksGetSlower) {
  double last = 0;
  for (const double rate : {1000.0, 10.0, 1.0, 0.1}) {
    Machine machine = round_machine();
    machine.inter_gb_per_s = rate;
    const double step_s = time_of(request(4), machine).step_s;
    EXPECT_GE(step_s, last);
    last = step_s;
  }
  Machine slow = round_machine(), slower = round_machine();
  slow.inter_gb_per_s = 1e-3, slower.inter_gb_per_s = 0.5e-3;
  EXPECT_NEAR(time_of(request(4), slower).step_s / time_of(request(4), slow).step_s, 2, 0.02)
      << "nothing but the links counts";
}

TEST(PlannedTime, HidesCommunicationBehindTheComputation) {
  PlanInput r = request(2);
  Machine machine = round_machine();
  const TimePlan hidden = time_of(r, machine);
  r.parallel.overlap = false;
  const TimePlan shown = time_of(r, machine);
  EXPECT_NEAR(shown.exposed_s, shown.communication_s, 1e-12);
  EXPECT_NEAR(hidden.communication_s, shown.communication_s, 1e-12);
  EXPECT_LT(hidden.exposed_s, 0.8 * shown.exposed_s);
}

TEST(PlannedTime, HidesNoCopiesOfTheCoresThatCompute) {
  PlanInput r = request(2);
  r.on_gpu = false;
  Machine machine = round_machine();
  machine.gpus_per_node = 0;
  const TimePlan hidden = time_of(r, machine);
  r.parallel.overlap = false;
  const TimePlan shown = time_of(r, machine);
  EXPECT_NEAR(hidden.step_s, shown.step_s, 1e-12) << "on one node all is copied";
  EXPECT_NEAR(hidden.exposed_s, hidden.communication_s, 1e-12);
}

TEST(PlannedTime, OfAccumulationIsThatOfItsPasses) {
  PlanInput r = request(2);
  r.global_batch *= 10;
  const TimePlan ten = time_of(r);
  r.global_batch += 2 * 2;
  const TimePlan eleven = time_of(r);
  r.global_batch += 2 * 2;
  const TimePlan twelve = time_of(r);
  EXPECT_NEAR(twelve.step_s - eleven.step_s, eleven.step_s - ten.step_s, 1e-12);
  EXPECT_GT(eleven.step_s, ten.step_s);
}

/// In an all_gather or reduce_scatter of a ring each link between nodes takes (size - 1) / size of
/// the bytes, so that the bytes of a step follow from the units.
TEST(PlannedTime, SendsHeadEmbeddingAndLastBlockOnceAPass) {
  for (const std::int64_t passes : {1, 2, 7}) {
    PlanInput r = request(4);
    r.global_batch *= passes;
    const DecoderTable table(r.architecture);
    const Plan plan = make(r, table.table());
    double gathered = 0, reduced = 0;
    const auto& units = plan.shards.units();
    for (std::size_t i = 0; i < units.size(); ++i) {
      const auto whole = static_cast<double>(units[i].padded_count());
      // Only the first of the two blocks is freed before backward needs it.
      gathered +=
          (units[i].name == "layers.0" ? 2 : 1) * whole * core::size_bytes(r.numbers.compute);
      reduced += whole * static_cast<double>(r.numbers.wire_bytes());
    }
    const double all = static_cast<double>(passes) * (gathered + reduced);
    const GroupShape shards = shape_of(groups::fsdp, plan.mesh, plan.ranks);
    EXPECT_NEAR(time_of(r).sent_by_node_bytes,
                Links(round_machine(), false).gathered_by_node(shards, all), 1e-6 * all);
  }
}

TEST(PlannedTime, KeepsLinksAsLongBusyAsItsBytesTake) {
  // Nothing but bytes between nodes costs time.
  Machine machine = round_machine();
  machine.inter_gb_per_s = 1e-3;
  for (const char* sharding : {"FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "NO_SHARD"}) {
    PlanInput r = request(4, sharding);
    r.global_batch *= 5;
    const TimePlan time = time_of(r, machine);
    EXPECT_NEAR(time.sent_by_node_bytes / (1e9 * machine.inter_gb_per_s), time.communication_s,
                0.01 * time.communication_s)
        << sharding;
  }
}

TEST(PlannedTime, AFourBitModelSendsAQuarterOfItsGathers) {
  const TimePlan dense = time_of(request(4), round_machine(), {.rank = 1});
  const TimePlan packed =
      time_of(request(4), round_machine(), {1, false, model::Packing::Kind::nf4});
  EXPECT_LT(packed.communication_s, 0.75 * dense.communication_s)
      << "embedding and head stay as they are";
}

TEST(PlannedTime, SaysWhichRatesAreMissing) {
  Machine machine = round_machine();
  EXPECT_TRUE(missing_rates(machine, request(4)).empty());
  machine.inter_gb_per_s = machine.bf16_tflops = 0;
  EXPECT_EQ(missing_rates(machine, request(4)),
            (std::vector<std::string>{"bf16_tflops", "inter_gb_per_s"}));
  EXPECT_EQ(missing_rates(machine, request(2)), std::vector<std::string>{"bf16_tflops"})
      << "one node needs no network";
}

TEST(PlannedTime, TakesOneHundredThousandRanks) {
  PlanInput r = request(100'000);
  const TimePlan t = time_of(r);
  EXPECT_GT(t.step_s, 0);
  EXPECT_GT(t.exposed_share(), 0.5) << "so small a model is not for so many";
}

Site site(std::int64_t available_bytes = 0) {
  return {round_machine(), Passes::fused, available_bytes};
}

TEST(PlannedUpdate, IsTheSumOfTheUnitsWhereNothingTravels) {
  EXPECT_DOUBLE_EQ(play_update({{.update = 3}, {.update = 4}}, {}), 7);
  EXPECT_DOUBLE_EQ(play_update({}, {}), 0);
}

TEST(PlannedUpdate, OffloadedTravelsBehindTheUpdates) {
  const schedule::Rules offloaded = {.offloads = true};
  const UpdateSeconds slow = {.fetch = 1, .update = 10, .publish = 2};
  EXPECT_DOUBLE_EQ(play_update({slow, slow, slow}, offloaded), 1 + 30 + 2)
      << "only the first gradient and the last weights are waited for";
  const UpdateSeconds quick = {.fetch = 4, .update = 1, .publish = 3};
  EXPECT_DOUBLE_EQ(play_update({quick, quick, quick}, offloaded), 3 * (4 + 3))
      << "the link is busy all the time";
}

TEST(PlannedTime, OffloadedIsBelowCopiesAndUpdatesOneAfterTheOther) {
  PlanInput r = request(2);
  r.on_gpu = r.offloads_optimizer = true;
  const DecoderTable table(r.architecture);
  Machine machine = site().machine;
  machine.host_gb_per_s = 10;
  const Plan plan = make(r, table.table());
  const double time_s = plan_time(plan, r, table.table(), machine, Passes::fused).optimizer_s;
  const auto elements = static_cast<double>(plan.shards.shard_elements());
  const double update_s = elements * (2 * 4 + 2 * 8 + 4 + 2) / 10e9;
  const double travel_s = elements * (4 + 2) / 10e9;
  EXPECT_GT(time_s, update_s);
  EXPECT_LT(time_s, update_s + 0.7 * travel_s);
}

TEST(Strategies, ListsThoseThatDifferFastestFirst) {
  const DecoderTable table(tests::decoder(small));
  const auto strategies = compare(request(4), table.table(), site());
  ASSERT_EQ(strategies.size(), 4U);
  for (std::size_t i = 1; i < strategies.size(); ++i)
    EXPECT_LE(strategies[i - 1].time.step_s, strategies[i].time.step_s);
  EXPECT_EQ(compare(request(1), table.table(), site()).size(), 1U);
  EXPECT_EQ(compare(request(2), table.table(), site()).size(), 3U) << "one node is no hybrid";
}

TEST(Strategies, GathersInsideANodeWhereTheNetworkIsSlow) {
  PlanInput r = request(8);
  const DecoderTable table(r.architecture);
  Site slow = site();
  slow.machine.inter_gb_per_s = 0.01;
  r.global_batch *= 8;
  const auto strategies = compare(r, table.table(), slow);
  const auto place = [&](Sharding sharding) {
    return std::find_if(strategies.begin(), strategies.end(),
                        [&](const Strategy& s) { return s.mesh.sharding == sharding; });
  };
  EXPECT_LT(place(Sharding::hybrid_shard), place(Sharding::full_shard));
  EXPECT_NE(reason(strategies).find("for communication"), std::string::npos) << reason(strategies);
}

TEST(Strategies, SpreadsACopyOverAsFewNodesAsHoldIt) {
  const PlanInput r = request(16);
  const DecoderTable table(r.architecture);
  PlanInput over_two_nodes = r;
  over_two_nodes.parallel.sharding = sharding_named("HYBRID_SHARD");
  over_two_nodes.parallel.dp_shard = 4;
  const std::int64_t enough = make(over_two_nodes, table.table()).memory_bytes();
  const auto strategies = compare(r, table.table(), site(enough));
  const auto found = std::find_if(strategies.begin(), strategies.end(),
                                  [](const Strategy& s) { return s.name() == "HYBRID_SHARD 4"; });
  ASSERT_NE(found, strategies.end());
  EXPECT_TRUE(found->fits);
  for (const Strategy& s : strategies)
    EXPECT_TRUE(s.name() != "HYBRID_SHARD" || !s.fits) << "one node does not hold it";
}

TEST(Strategies, PutsWhatDoesNotFitLast) {
  const DecoderTable table(tests::decoder(small));
  auto strategies = compare(request(4), table.table(), site());
  std::int64_t least = strategies.front().memory_bytes;
  for (const Strategy& s : strategies)
    least = std::min(least, s.memory_bytes);
  strategies = compare(request(4), table.table(), site(least));
  EXPECT_TRUE(strategies.front().fits);
  EXPECT_EQ(strategies.front().memory_bytes, least);
  EXPECT_FALSE(strategies.back().fits);
  EXPECT_EQ(reason(compare(request(4), table.table(), site(1))), "none of them fits");
}

TEST(Strategies, ThatTheHostDoesNotHoldDoNotFit) {
  PlanInput r = request(4);
  r.offloads_optimizer = true;
  const DecoderTable table(r.architecture);
  Site small_host = site(std::int64_t{1} << 40);
  small_host.machine.host_gb_per_s = 25;
  std::int64_t least = make(r, table.table()).host_bytes();
  ASSERT_GT(least, 0);
  small_host.available_host_bytes = least;
  const auto strategies = compare(r, table.table(), small_host);
  EXPECT_TRUE(strategies.front().fits);
  EXPECT_EQ(strategies.back().name(), "NO_SHARD");
  EXPECT_FALSE(strategies.back().fits) << "it keeps all of the optimizer's state";
  EXPECT_TRUE(strategies.back().fits_device);
  small_host.available_host_bytes = 1;
  EXPECT_EQ(reason(compare(r, table.table(), small_host)), "none of them fits");
}

}  // namespace
}  // namespace finetune::plan::time_test
