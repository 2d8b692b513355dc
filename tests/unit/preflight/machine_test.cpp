// SPDX-License-Identifier: Apache-2.0
#include "preflight/machine.hpp"

#include <gtest/gtest.h>

#include "deck/deck.hpp"
#include "jobs.hpp"

namespace finetune::preflight::machine_test {
namespace {

Sweep sweep(const std::string& axis, const std::string& collective, int size, double large_s) {
  return {axis, collective, size, {{4096, 1e-5 * (size - 1), 0}, {32'000'000, large_s, 0}}};
}

TEST(Sweeps, GiveWhatARankSendsInARing) {
  EXPECT_DOUBLE_EQ(sweep("fsdp", "all_gather", 4, 0.01).ring_gb_per_s(), 0.75 * 3.2);
  EXPECT_DOUBLE_EQ(sweep("fsdp", "all_reduce", 4, 0.01).ring_gb_per_s(), 2 * 0.75 * 3.2);
  EXPECT_DOUBLE_EQ(sweep("ep", "all_to_all", 4, 0.01).ring_gb_per_s(), 0.75 * 3.2);
  EXPECT_DOUBLE_EQ(sweep("cp", hand_on, 4, 0.01).ring_gb_per_s(), 3.2);
}

TEST(Sweeps, NameTheNodeThatNeedsMuchLonger) {
  const std::vector<Sweep> sweeps = {sweep("fsdp", "all_gather", 2, 0.01)};
  const JobFacts job = healthy_job(4, 2);
  std::vector<double> seconds(8, 0.01);
  EXPECT_EQ(judge_sweeps(job, sweeps, {seconds}).grade(), Grade::good);
  seconds[4] = seconds[5] = 0.03;
  const Finding finding = judge_sweeps(job, sweeps, {seconds});
  ASSERT_EQ(finding.problems.size(), 1u);
  EXPECT_TRUE(holds(first_line(finding), "n2: rank 4: its all_gather of fsdp takes 30 ms"))
      << first_line(finding);
}

TEST(Machine, OfHybridShardTellsBothLevels) {
  const std::vector<Sweep> sweeps = {sweep("fsdp", "all_gather", 4, 0.01),
                                     sweep("fsdp", "reduce_scatter", 4, 0.02),
                                     sweep("dp_replicate", "all_gather", 2, 0.1)};
  const auto machine = machine_of(healthy_job(2, 4), {}, sweeps);
  EXPECT_DOUBLE_EQ(machine.intra_gb_per_s, 0.75 * 1.6) << "the slower of the two";
  EXPECT_DOUBLE_EQ(machine.inter_gb_per_s, 4 * 0.5 * 0.32) << "four ranks send at once";
  EXPECT_DOUBLE_EQ(machine.intra_latency_us, 10);
  EXPECT_EQ(machine.cores_per_node, 5);
  EXPECT_EQ(machine.ranks_per_node, 4);
  EXPECT_DOUBLE_EQ(machine.node_memory_gib, 32);
  EXPECT_TRUE(machine.is_measured);
  EXPECT_DOUBLE_EQ(machine.bf16_tflops, 1);
}

TEST(Machine, TellsWhatProductsWithoutEndWouldReach) {
  JobFacts job = healthy_job(1, 3);
  for (Facts& facts : job.ranks) {
    facts.rates.bf16_size = facts.rates.fp32_size = 1000;
    facts.rates.half_size = 250;
  }
  const auto machine = machine_of(job, {}, {});
  EXPECT_DOUBLE_EQ(machine.product_half_size, 250);
  EXPECT_DOUBLE_EQ(machine.bf16_tflops, 1.25) << "a plan of such products finds the 1 again";
  EXPECT_DOUBLE_EQ(machine.fp32_tflops, 0.625);
}

TEST(Machine, TellsTheRatesOfItsKernels) {
  JobFacts job = healthy_job(1, 3);
  for (Facts& facts : job.ranks) {
    facts.rates.least_side = 32;
    facts.rates.attention_tflops = 0.5;
    facts.rates.attention_half_length = 200;
    facts.rates.fp32_attention_tflops = 0.25;
    facts.rates.pass_gelements_per_s = 4;
    facts.rates.operation_us = 5;
    facts.rates.host_gb_per_s = 10;
    facts.rates.host_link_gb_per_s = 20;
    facts = facts_from_text(to_text(facts));
  }
  const auto machine = machine_of(job, {}, {});
  EXPECT_DOUBLE_EQ(machine.product_least_side, 32);
  EXPECT_DOUBLE_EQ(machine.attention_tflops, 0.5);
  EXPECT_DOUBLE_EQ(machine.attention_half_length, 200);
  EXPECT_DOUBLE_EQ(machine.fp32_attention_tflops, 0.25);
  EXPECT_DOUBLE_EQ(machine.pass_gelements_per_s, 4);
  EXPECT_DOUBLE_EQ(machine.operation_us, 5);
  EXPECT_DOUBLE_EQ(machine.host_gb_per_s, 10);
  EXPECT_DOUBLE_EQ(machine.host_link_gb_per_s, 20);
}

TEST(Machine, WhoseShardGroupSpansNodesTakesTheLinks) {
  const std::vector<Sweep> sweeps = {sweep("fsdp", "all_gather", 8, 0.01)};
  const std::vector<Link> links = {{0, 1, 80, 3}, {1, 0, 80, 3}};
  const auto machine = machine_of(healthy_job(2, 4), links, sweeps);
  EXPECT_DOUBLE_EQ(machine.inter_gb_per_s, 10);
  EXPECT_DOUBLE_EQ(machine.inter_latency_us, 3);
  EXPECT_DOUBLE_EQ(machine.intra_gb_per_s, 0) << "not known";
}

TEST(Machine, WhoseShardGroupSpansNodesTellsTheLevelsThatWereMeasuredApart) {
  const std::vector<Sweep> sweeps = {sweep("fsdp", "all_gather", 8, 0.01),
                                     sweep("node", "all_gather", 4, 0.01),
                                     sweep("nodes", "all_gather", 2, 0.1)};
  const auto machine = machine_of(healthy_job(2, 4), {}, sweeps);
  EXPECT_DOUBLE_EQ(machine.intra_gb_per_s, 0.75 * 3.2);
  EXPECT_DOUBLE_EQ(machine.inter_gb_per_s, 4 * 0.5 * 0.32);
}

TEST(Machine, IsReadBackAsItWasWritten) {
  plan::Machine machine;
  machine.name = "a \"b\"";
  machine.cores_per_node = 64;
  machine.bf16_tflops = 0.125;
  deck::Deck deck(to_toml(machine), "m.toml", {});
  plan::Machine read;
  deck::Table table = deck.table("machine", "");
  read.bind(table);
  deck.finish();
  EXPECT_EQ(read.name, machine.name);
  EXPECT_EQ(read.cores_per_node, 64);
  EXPECT_FALSE(read.is_measured);
  EXPECT_EQ(read.bf16_tflops, 0.125);
  EXPECT_EQ(read.inter_gb_per_s, 0);
}

}  // namespace
}  // namespace finetune::preflight::machine_test
