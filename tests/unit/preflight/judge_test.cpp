// SPDX-License-Identifier: Apache-2.0
#include "preflight/judge.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "jobs.hpp"

namespace finetune::preflight::judge_test {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

TEST(Launch, OfOtherThanExpectedNamesNodes) {
  const JobFacts job = healthy_job(3, 2);
  EXPECT_EQ(judge_launch(job, {.nodes = 3, .ranks_per_node = 2}).grade(), Grade::good);
  EXPECT_EQ(judge_launch(job, {}).text, "6 ranks on 3 nodes, 2 per node");
  const Finding nodes = judge_launch(job, {.nodes = 4});
  EXPECT_EQ(nodes.grade(), Grade::bad);
  EXPECT_TRUE(holds(first_line(nodes),
                    "the job has 3 nodes (parallel.expect_nodes = 4; there are "
                    "n0, n1, n2)"))
      << first_line(nodes);
  const Finding ranks = judge_launch(job, {.ranks_per_node = 4});
  EXPECT_EQ(ranks.problems.size(), 3u);
  EXPECT_TRUE(holds(first_line(ranks), "n0: has 2 ranks")) << first_line(ranks);
}

TEST(Launch, WithAnUnevenNodeWarnsOfIt) {
  JobFacts job = healthy_job(3, 2);
  job.ranks.erase(job.ranks.begin() + 3);
  const Finding finding = judge_launch(job, {});
  EXPECT_EQ(finding.grade(), Grade::warning);
  EXPECT_TRUE(holds(first_line(finding), "n1: has 1 rank (n0 has 2)")) << first_line(finding);
}

TEST(Program, OfOneNodeThatIsAnotherIsNamed) {
  JobFacts job = healthy_job(4, 2);
  // The first node is the odd one: the majority is right.
  job.ranks[0].program = job.ranks[1].program = "q";
  const Finding finding = judge_program(job);
  EXPECT_EQ(finding.problems.size(), 1u);
  EXPECT_TRUE(holds(first_line(finding), "n0: rank 0: has another program")) << first_line(finding);
}

TEST(Deck, ThatDiffersIsBadAndOneThatIsNotSeenIsNot) {
  JobFacts job = healthy_job(3, 1);
  job.ranks[1].of_node.deck = "";
  EXPECT_EQ(judge_deck(job, "a.toml").grade(), Grade::note);
  job.ranks[2].of_node.deck = "e";
  const Finding finding = judge_deck(job, "a.toml");
  EXPECT_EQ(finding.grade(), Grade::bad);
  EXPECT_TRUE(holds(first_line(finding), "n2: a.toml: is not the deck of the other nodes"));
}

TEST(Memory, NamesTheNodesThatHaveTooLittle) {
  JobFacts job = healthy_job(3, 2);
  job.ranks[4].memory_bytes = 3 * gib;
  EXPECT_EQ(judge_memory(job, {.bytes = 2 * gib}).grade(), Grade::good);
  const Finding finding = judge_memory(job, {.bytes = 4 * gib, .remedy = "Use less."});
  EXPECT_EQ(finding.problems.size(), 1u);
  EXPECT_EQ(first_line(finding),
            "n2: rank 4: needs 4.00 GiB of memory per rank (3.00 GiB are there). Use less.");
  EXPECT_TRUE(holds(finding.text, "n2 has the least, 3.00 GiB")) << finding.text;
}

TEST(Memory, OfTheHostIsLookedAtToo) {
  const Finding finding =
      judge_memory(healthy_job(1, 1), {.bytes = gib, .host_bytes = 9 * gib, .on_gpu = true});
  EXPECT_TRUE(holds(first_line(finding), "needs 9.00 GiB of host memory")) << first_line(finding);
}

TEST(Disk, WithoutRoomForACheckpointIsBadAndForThoseThatStayAWarning) {
  JobFacts job = healthy_job(2, 1);
  job.ranks[1].of_node.disk.free_bytes = 3 * gib;
  EXPECT_EQ(judge_disk(job, {.checkpoint_bytes = gib, .num_kept = 2}).grade(), Grade::good);
  EXPECT_EQ(judge_disk(job, {.checkpoint_bytes = gib, .num_kept = 3}).grade(), Grade::warning);
  EXPECT_EQ(judge_disk(job, {.checkpoint_bytes = gib, .num_kept = 3, .num_there = 1}).grade(),
            Grade::good);
  const Finding finding = judge_disk(job, {.checkpoint_bytes = 4 * gib});
  EXPECT_EQ(finding.grade(), Grade::bad);
  EXPECT_TRUE(holds(first_line(finding), "n1: /scratch: has 3.00 GiB free")) << first_line(finding);
}

TEST(Disk, ThatANodeCannotUseIsNamed) {
  JobFacts job = healthy_job(3, 1);
  job.ranks[1].of_node.disk.sees_root = false;
  job.ranks[2].of_node.disk.problem = "Read-only file system";
  const Finding finding = judge_disk(job, {});
  ASSERT_EQ(finding.problems.size(), 2u);
  EXPECT_TRUE(holds(first_line(finding), "n1: /scratch: is not the folder that rank 0 sees"));
  EXPECT_EQ(finding.problems[1].message.where, "n2: /scratch");
}

TEST(Clocks, AreComparedWithTheMedianNotWithRankZero) {
  JobFacts job = healthy_job(3, 1);
  job.ranks[1].of_node.clock_offset_s = job.ranks[2].of_node.clock_offset_s = -5;
  const Finding finding = judge_clocks(job);
  EXPECT_EQ(finding.problems.size(), 1u);
  EXPECT_EQ(finding.grade(), Grade::warning);
  EXPECT_TRUE(holds(first_line(finding), "n0: its clock is 5.0 s ahead")) << first_line(finding);
  job.ranks[2].of_node.clock_offset_s = -100;
  EXPECT_EQ(judge_clocks(job).grade(), Grade::bad);
}

TEST(MeasuredRates, MuchBelowTheMedianAreNamed) {
  JobFacts job = healthy_job(4, 2);
  EXPECT_EQ(judge_rates(job).grade(), Grade::good);
  job.ranks[3].rates.bf16_tflops = 0.7;
  EXPECT_EQ(judge_rates(job).grade(), Grade::warning);
  job.ranks[6].rates.memory_gb_per_s = 4;
  const Finding finding = judge_rates(job);
  EXPECT_EQ(finding.grade(), Grade::bad);
  EXPECT_TRUE(holds(first_line(finding), "n1: rank 3: bf16 products at 0.7 TFLOP/s (70 % of"))
      << first_line(finding);
  EXPECT_EQ(finding.problems.back().message.where, "n3: rank 6");
}

TEST(MeasuredRates, AreNoReasonToStopWhereTheyMayBeChance) {
  const auto with_a_slow_rank = [](JobFacts job) {
    job.ranks[1].rates.bf16_tflops = 0.1;
    return job;
  };
  EXPECT_EQ(judge_rates(with_a_slow_rank(healthy_job(3, 1))).grade(), Grade::bad);
  EXPECT_EQ(judge_rates(with_a_slow_rank(healthy_job(2, 1))).grade(), Grade::warning)
      << "which of two is the usual one?";
  JobFacts job = with_a_slow_rank(healthy_job(3, 1));
  job.ranks[1].cpu.cores = {0, 1};
  EXPECT_EQ(judge_rates(job).grade(), Grade::warning) << "it may run on all cores of its node";
  for (Facts& facts : job.ranks)
    facts.num_gpus = 1;
  EXPECT_EQ(judge_rates(job).grade(), Grade::bad) << "a GPU does not move";
  job = with_a_slow_rank(healthy_job(3, 1));
  job.ranks[1].of_node.loads = {{0, 0.5}};
  EXPECT_EQ(judge_rates(job).grade(), Grade::warning) << "others compute there, which is told";
  job.ranks[1].of_node.loads = {{1, 0.5}};
  EXPECT_EQ(judge_rates(job).grade(), Grade::bad) << "not on its core";
}

TEST(MeasuredRates, OfASlowRankAreWorthASecondLook) {
  std::vector<MeasuredRates> rates(4, {.bf16_tflops = 1, .fp32_tflops = 1, .memory_gb_per_s = 10});
  EXPECT_FALSE(has_slow_rank(rates));
  rates[2].memory_gb_per_s = 7;
  EXPECT_TRUE(has_slow_rank(rates));
  const MeasuredRates best =
      best_of(rates[2], {.bf16_tflops = 0.9, .memory_gb_per_s = 9, .bf16_size = 5});
  EXPECT_EQ(best.bf16_tflops, 1);
  EXPECT_EQ(best.bf16_size, 0) << "of the better one";
  EXPECT_EQ(best.memory_gb_per_s, 9);
}

TEST(MeasuredRates, OfTwoSizesTellTheSizeOfHalfTheRate) {
  const auto rate = [](double size) { return 40 * size / (size + 100); };
  EXPECT_NEAR(half_size_of(256, rate(256), 1024, rate(1024)), 100, 1e-6);
  EXPECT_EQ(half_size_of(256, 3, 1024, 2), 0);
  EXPECT_EQ(half_size_of(0, 0, 1024, 2), 0);
  EXPECT_EQ(half_size_of(256, 0.001, 1024, 2), 1024) << "by chance: no more than the measured size";
}

TEST(MeasuredRates, TellHowLargeAThinSideSeems) {
  const MeasuredRates rates = {.bf16_tflops = 1, .bf16_size = 1000};
  // [1000, 16] [16, 1000] has 32e6 flops.
  EXPECT_NEAR(least_side_of(16, 128e-6, rates), 64, 1e-6);
  EXPECT_EQ(least_side_of(16, 32e-6, rates), 0);
  const MeasuredRates bent = {.bf16_tflops = 1, .bf16_size = 1000, .half_size = 500};
  // 1.5 TFLOP/s without end; of a mean side of 400, 400 / 900 of it.
  EXPECT_NEAR(least_side_of(16, 2 * 64e6 / 1.5e12 * 900 / 400, bent), 64, 1e-6);
  EXPECT_EQ(least_side_of(16, 1, {}), 0) << "nothing was measured";
}

TEST(MeasuredRates, OfRanksThatShareCoresAreNotCompared) {
  JobFacts job = healthy_job(1, 2);
  job.ranks[1].cpu.cores = {0};
  job.ranks[1].rates.bf16_tflops = 0.1;
  EXPECT_EQ(judge_rates(job).grade(), Grade::good);
}

TEST(Facts, TravelAsText) {
  JobFacts job = healthy_job(1, 1);
  Facts& facts = job.ranks.front();
  facts.of_node.loads = {{3, 0.5}};
  facts.of_node.gpus = {{.index = 1, .name = "H100", .foreign = {"12 (\xff)"}}};
  const Facts read = facts_from_text(to_text(facts));
  EXPECT_EQ(read.cpu.cores, facts.cpu.cores);
  EXPECT_EQ(read.of_node.loads.front().core, 3);
  EXPECT_EQ(read.of_node.gpus.front().name, "H100");
  EXPECT_EQ(read.memory_bytes, facts.memory_bytes);
}

TEST(OddOnes, AreThoseUnlikeMost) {
  const std::vector<std::string> most = {"b", "a", "a", "c"};
  EXPECT_EQ(odd_ones(most).usual, 1u);
  EXPECT_EQ(odd_ones(most).odd, (std::vector<std::size_t>{0, 3}));
  const std::vector<std::string> even = {"b", "a"};
  EXPECT_EQ(odd_ones(even).odd, (std::vector<std::size_t>{1})) << "the first is right";
}

TEST(Names, OfNodesWithOneNameAreNumbered) {
  comm::Topology topology;
  topology.node_names = {"a", "b", "a"};
  EXPECT_EQ(names_of(topology), (std::vector<std::string>{"a (node 0)", "b", "a (node 2)"}));
}

}  // namespace
}  // namespace finetune::preflight::judge_test
