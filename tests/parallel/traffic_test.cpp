// SPDX-License-Identifier: Apache-2.0
// What ranks that share matrices, sequences or experts send each other is what a plan counts.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/meshes.hpp"
#include "parallel/trainer.hpp"
#include "plan/time/traffic.hpp"
#include "support/optimizers.hpp"

namespace finetune::tests::traffic_test {
namespace {

/// Twelve of a sequence's tokens for each of two, three or four ranks, in two pieces.
constexpr std::int64_t length = 24;
constexpr std::int64_t accumulation = 2;

plan::PlanInput request(const Arrangement& setup) {
  plan::PlanInput request = adamw_request();
  request.architecture = architecture_of(setup);
  request.parallel.sharding = setup.sharding;
  request.parallel.dp_shard = setup.dp_shard;
  request.parallel.tp = setup.parts.tp;
  request.parallel.cp = setup.parts.cp;
  request.parallel.ep = setup.parts.ep;
  request.parallel.cp_method = setup.context;
  request.parallel.bucket = plan::bucket_named(setup.bucket);
  request.numbers = setup.numbers;
  using enum plan::ActivationCheckpointing;
  request.activation_checkpointing = setup.blocks == train::Blocks::recomputed    ? full
                                     : setup.recompute == model::Recompute::cheap ? selective
                                                                                  : none;
  request.adapter_dropout = setup.adapter.of<adapters::lora::Settings>().dropout;
  const std::int64_t ranks = world().size();
  request.ranks = {.world_size = ranks, .ranks_per_node = ranks};
  request.micro_batch = setup.micro_batch;
  request.max_seq_length = length;
  request.global_batch =
      setup.micro_batch * accumulation * ranks / (setup.parts.tp * setup.parts.cp);
  return request;
}

/// Full sequences, all of whose tokens are trained.
data::StepData full_sequences(const Arrangement& setup, std::int64_t batch_ranks) {
  data::MicroBatch batch{.batch = setup.micro_batch, .length = length, .ids = {}, .labels = {}};
  for (std::int64_t i = 0; i < setup.micro_batch * length; ++i) {
    batch.ids.push_back(i * i % 11);
    batch.labels.push_back(i * 7 % 11);
  }
  data::StepData data;
  data.num_samples = setup.micro_batch * accumulation * batch_ranks;
  data.num_tokens = data.num_trained_tokens = data.num_samples * length;
  data.micro_steps.assign(static_cast<std::size_t>(accumulation), batch);
  return data;
}

/// Of the rank that sends most, as a plan counts units; and on average over all ranks.
struct Sent {
  double most = 0;
  double average = 0;
};

std::int64_t sent_in(const shard::Groups& groups, const std::string& name) {
  for (const auto& [group_name, group] : groups.all())
    if (group_name == name) return group->traffic().sent_bytes;
  return 0;
}

/// Collective on the world.
Sent over_ranks(std::int64_t sent) {
  const auto own = static_cast<double>(sent);
  return {world().all_reduce(own, comm::Reduce::max),
          world().all_reduce(own, comm::Reduce::sum) / world().size()};
}

void expect_planned(const Arrangement& setup) {
  const plan::PlanInput wanted = request(setup);
  const model::ParameterTable table = table_of(setup);
  const plan::Plan plan = plan::make(wanted, table);
  Trainer trainer(world(), setup);
  // What was sent to find the first values of magnitudes is not a step's, and the first step finds
  // nothing of one before.
  const data::StepData data = full_sequences(setup, trainer.world().batch.size());
  trainer.step(0, data, 0.0, true);
  const auto counts = plan::plan_traffic(plan, wanted, table);
  std::vector<std::int64_t> before;
  for (const plan::GroupTraffic& group : counts)
    before.push_back(sent_in(trainer.groups(), group.name));
  trainer.step(1, data, 0.0, true);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const plan::GroupTraffic& group = counts[i];
    const Sent sent = over_ranks(sent_in(trainer.groups(), group.name) - before[i]);
    const bool is_of_units = group.name != "tp" && group.name != "cp" && group.name != "ep";
    const double got = is_of_units ? sent.most : sent.average;
    EXPECT_NEAR(got, group.sent_bytes, 1e-9 * got)
        << group.name << " of " << name_of(setup) << (is_of_units ? ", most" : ", average");
  }
}

class TrafficOf : public testing::TestWithParam<TinyKind> {};

TEST_P(TrafficOf, IsWhatAPlanCounts) {
  for (Arrangement setup : meshes(numbers(core::DType::bf16, plan::Determinism::off), GetParam())) {
    // All experts of every token: then none gets more than another.
    setup.top_k = 4;
    expect_planned(setup);
    setup.blocks = train::Blocks::recomputed;
    expect_planned(setup);
  }
}

TEST(TrafficOfRings, IsWhatAPlanCounts) {
  for (Arrangement setup : meshes(numbers(core::DType::bf16, plan::Determinism::off))) {
    setup.context = plan::ContextMethod::ring;
    expect_planned(setup);
  }
}

TEST(TrafficOfAdapters, IsWhatAPlanCounts) {
  for (Arrangement setup : meshes(numbers(core::DType::f32, plan::Determinism::off))) {
    setup.adapter.name = "lora";
    setup.adapter.of<adapters::lora::Settings>().r = 4;
    setup.adapter.of<adapters::lora::Settings>().dropout = 0.25;
    for (const bool use_dora : {false, true}) {
      setup.adapter.of<adapters::lora::Settings>().use_dora = use_dora;
      setup.recompute = use_dora ? model::Recompute::cheap : model::Recompute::nothing;
      expect_planned(setup);
    }
  }
}

TEST(TrafficOfEightBits, IsWhatAPlanCounts) {
  plan::Numbers eight_bits = numbers(core::DType::bf16, plan::Determinism::off);
  eight_bits.fp8 = model::Fp8Recipe{};
  for (const TinyKind kind : {TinyKind::wide, TinyKind::wide_experts}) {
    int units_in_8_bits = 0, units_of_experts = 0;
    for (Arrangement setup : meshes(eight_bits, kind)) {
      // All experts of every token: then none gets more than another.
      if (kind == TinyKind::wide_experts) setup.top_k = 4;
      const plan::Plan plan = plan::make(request(setup), table_of(setup));
      for (const plan::UnitLayout& unit : plan.shards.units()) {
        units_in_8_bits += unit.in_8_bits ? 1 : 0;
        units_of_experts += unit.in_8_bits && unit.is_of_experts ? 1 : 0;
      }
      expect_planned(setup);
    }
    EXPECT_GT(units_in_8_bits, 0);
    if (kind == TinyKind::wide_experts && world().size() > 1) {
      EXPECT_GT(units_of_experts, 0) << "where ranks share them out";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TrafficOf,
                         testing::Values(TinyKind::own_head, TinyKind::tied, TinyKind::experts,
                                         TinyKind::fused_experts, TinyKind::chunks,
                                         TinyKind::latents));

}  // namespace
}  // namespace finetune::tests::traffic_test
