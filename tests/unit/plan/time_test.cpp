// SPDX-License-Identifier: Apache-2.0
#include "plan/time/time.hpp"

#include <gtest/gtest.h>

#include "plan/layout/stages.hpp"
#include "plan/machine/detail/collectives.hpp"
#include "plan/time/detail/timeline.hpp"
#include "plan/time/strategies.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::time_test {
namespace {

using tests::DecoderTable;
using tests::round_machine;
using tests::Training;

TimePlan time_of(const PlanInput& r, const Machine& machine = round_machine(),
                 const Training& training = {}) {
  const DecoderTable table(r.architecture, training);
  return plan_time(make(r, table.table()), r, table.table(), machine, Passes::fused);
}

TEST(PlannedTime, AddsUpToTheStep) {
  for (const std::int64_t ranks : {1, 2, 4, 6}) {
    const TimePlan t = time_of(small_request(ranks));
    EXPECT_NEAR(
        t.products_s + t.attention_s + t.memory_s + t.program_s + t.exposed_s + t.optimizer_s,
        t.step_s, 1e-9 * t.step_s);
    EXPECT_NEAR(t.tokens_per_s, static_cast<double>(ranks * 64) / t.step_s, 1e-6 * t.tokens_per_s);
    EXPECT_NEAR(t.mfu, work(small_request(1)).model_flops() / t.step_s / 2e12, 1e-9);
  }
}

TEST(PlannedTime, OneRankHasNoCommunication) {
  for (const char* sharding : {"FULL_SHARD", "NO_SHARD"}) {
    const TimePlan t = time_of(small_request(1, sharding));
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
    const double step_s = time_of(small_request(4), machine).step_s;
    EXPECT_GE(step_s, last);
    last = step_s;
  }
  Machine slow = round_machine(), slower = round_machine();
  slow.inter_gb_per_s = 1e-3, slower.inter_gb_per_s = 0.5e-3;
  EXPECT_NEAR(time_of(small_request(4), slower).step_s / time_of(small_request(4), slow).step_s, 2,
              0.02)
      << "nothing but the links counts";
}

TEST(PlannedTime, HidesCommunicationBehindTheComputation) {
  PlanInput r = small_request(2);
  Machine machine = round_machine();
  const TimePlan hidden = time_of(r, machine);
  r.parallel.overlap = false;
  const TimePlan shown = time_of(r, machine);
  EXPECT_NEAR(shown.exposed_s, shown.communication_s, 1e-12);
  EXPECT_NEAR(hidden.communication_s, shown.communication_s, 1e-12);
  EXPECT_LT(hidden.exposed_s, 0.8 * shown.exposed_s);
}

TEST(PlannedTime, HidesNoCopiesOfTheCoresThatCompute) {
  PlanInput r = small_request(2);
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
  PlanInput r = small_request(2);
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
TEST(PlannedTime, SendsWhatIsFreedBeforeItIsNeededAgain) {
  for (const std::int64_t passes : {1, 2, 7}) {
    PlanInput r = small_request(4);
    r.global_batch *= passes;
    const DecoderTable table(r.architecture);
    const Plan plan = make(r, table.table());
    double gathered = 0, reduced = 0, first_block = 0;
    const auto& units = plan.shards.units();
    for (std::size_t i = 0; i < units.size(); ++i) {
      const auto whole = static_cast<double>(units[i].padded_count());
      gathered += whole * core::size_bytes(r.numbers.compute);
      if (units[i].name == "layers.0") first_block = whole * core::size_bytes(r.numbers.compute);
      reduced += whole * static_cast<double>(r.numbers.wire_bytes());
    }
    // Only the first of the two blocks is freed before backward needs it, and then stays for the
    // next pass, until the optimizer changes it.
    const double all = static_cast<double>(passes) * (gathered + reduced) + first_block;
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
    PlanInput r = small_request(4, sharding);
    r.global_batch *= 5;
    const TimePlan time = time_of(r, machine);
    EXPECT_NEAR(time.sent_by_node_bytes / (1e9 * machine.inter_gb_per_s), time.communication_s,
                0.01 * time.communication_s)
        << sharding;
  }
}

TEST(PlannedTime, AFourBitModelSendsAQuarterOfItsGathers) {
  const TimePlan dense = time_of(small_request(4), round_machine(), {.rank = 1});
  const TimePlan packed =
      time_of(small_request(4), round_machine(), {1, false, model::Packing::Kind::nf4});
  EXPECT_LT(packed.communication_s, 0.8 * dense.communication_s)
      << "embedding and head stay as they are";
}

TEST(PlannedTime, SaysWhichRatesAreMissing) {
  Machine machine = round_machine();
  EXPECT_TRUE(missing_rates(machine, small_request(4)).empty());
  machine.inter_gb_per_s = machine.bf16_tflops = 0;
  EXPECT_EQ(missing_rates(machine, small_request(4)),
            (std::vector<std::string>{"bf16_tflops", "inter_gb_per_s"}));
  EXPECT_EQ(missing_rates(machine, small_request(2)), std::vector<std::string>{"bf16_tflops"})
      << "one node needs no network";
}

TEST(PlannedTime, TakesOneHundredThousandRanks) {
  PlanInput r = small_request(100'000);
  const TimePlan t = time_of(r);
  EXPECT_GT(t.step_s, 0);
  EXPECT_GT(t.exposed_share(), 0.5) << "so small a model is not for so many";
}

Site site(std::int64_t available_bytes = 0) {
  return {round_machine(), Passes::fused, available_bytes};
}

/// A step of the small model's four units that computes nothing but updates.
StepSeconds step_of(std::vector<UpdateSeconds> updates, const schedule::Rules& rules,
                    double gather_s = 0) {
  const PlanInput r = small_request(2);
  const DecoderTable table(r.architecture);
  const Plan plan = make(r, table.table());
  const auto stages =
      stages_of(table.table(), plan.shards, head_row(r.architecture, table.table()));
  PlannedTimes times;
  times.stages.resize(static_cast<std::size_t>(stages.num_stages()));
  times.units.resize(updates.size());
  for (UnitTimes& unit : times.units)
    unit.gather.seconds = gather_s;
  times.updates = std::move(updates);
  return play(plan.shards, stages, times, {rules, 1});
}

TEST(PlannedUpdate, IsTheSumOfTheUnitsWhereNothingTravels) {
  EXPECT_DOUBLE_EQ(step_of({{.update = 3}, {.update = 4}, {}, {.update = 1}}, {}).optimizer, 8);
  EXPECT_DOUBLE_EQ(step_of({{}, {}, {}, {}}, {}).optimizer, 0);
}

TEST(PlannedUpdate, OffloadedTravelsBehindTheUpdates) {
  const schedule::Rules offloaded = {.offloads = true};
  const UpdateSeconds slow = {.fetch = 1, .update = 10, .publish = 2};
  EXPECT_DOUBLE_EQ(step_of({slow, slow, slow, slow}, offloaded).optimizer, 1 + 40 + 2)
      << "only the first gradient and the last weights are waited for";
  const UpdateSeconds quick = {.fetch = 4, .update = 1, .publish = 3};
  EXPECT_DOUBLE_EQ(step_of({quick, quick, quick, quick}, offloaded).optimizer, 4 * (4 + 3))
      << "the link is busy all the time";
}

TEST(PlannedUpdate, HasTheNextStepsFirstGathersBehindIt) {
  // Embedding, two blocks, head: of a step's six gathers two run behind the updates that follow
  // their own, and nothing is computed behind the others.
  const UpdateSeconds update = {.update = 5};
  const std::vector<UpdateSeconds> updates(4, update);
  const StepSeconds early = step_of(updates, {}, 2);
  EXPECT_DOUBLE_EQ(early.optimizer, 20);
  const StepSeconds late = step_of(updates, {.prefetch_depth = 0}, 2);
  EXPECT_DOUBLE_EQ(late.communication, early.communication);
  EXPECT_DOUBLE_EQ(late.exposed - early.exposed, 2 * 2);
  EXPECT_DOUBLE_EQ(early.total, early.optimizer + early.exposed);
  // Offloaded, weights come from the host first: of four units published 1, 7 and 13 s before the
  // last ones, the first two have been gathered by then.
  const StepSeconds offloaded =
      step_of(std::vector<UpdateSeconds>(4, {.update = 5, .publish = 6}), {.offloads = true}, 2);
  EXPECT_DOUBLE_EQ(offloaded.exposed, early.exposed);
}

TEST(PlannedTime, OffloadedIsBelowCopiesAndUpdatesOneAfterTheOther) {
  PlanInput r = small_request(2);
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
  const DecoderTable table(tests::architecture_of(tests::two_blocks));
  const auto strategies = compare(small_request(4), table.table(), site());
  ASSERT_EQ(strategies.size(), 4U);
  for (std::size_t i = 1; i < strategies.size(); ++i)
    EXPECT_LE(strategies[i - 1].time.step_s, strategies[i].time.step_s);
  EXPECT_EQ(compare(small_request(1), table.table(), site()).size(), 1U);
  EXPECT_EQ(compare(small_request(2), table.table(), site()).size(), 3U) << "one node is no hybrid";
}

TEST(Strategies, GathersInsideANodeWhereTheNetworkIsSlow) {
  PlanInput r = small_request(8);
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
  const PlanInput r = small_request(16);
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
  const DecoderTable table(tests::architecture_of(tests::two_blocks));
  auto strategies = compare(small_request(4), table.table(), site());
  std::int64_t least = strategies.front().memory_bytes;
  for (const Strategy& s : strategies)
    least = std::min(least, s.memory_bytes);
  strategies = compare(small_request(4), table.table(), site(least));
  EXPECT_TRUE(strategies.front().fits);
  EXPECT_EQ(strategies.front().memory_bytes, least);
  EXPECT_FALSE(strategies.back().fits);
  EXPECT_EQ(reason(compare(small_request(4), table.table(), site(1))), "none of them fits");
}

TEST(Strategies, ThatTheHostDoesNotHoldDoNotFit) {
  PlanInput r = small_request(4);
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
