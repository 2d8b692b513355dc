// SPDX-License-Identifier: Apache-2.0
#include "plan/time/job.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "core/error.hpp"
#include "support/errors.hpp"

namespace finetune::plan::job_test {
namespace {

constexpr double gib = 0x1p30;

Machine eight_gpus() {
  Machine machine;
  machine.gpus_per_node = 8;
  machine.cores_per_node = 112;
  machine.node_memory_gib = 1000;
  return machine;
}

std::string refusal(const std::function<void()>& f) {
  return tests::error_of(core::ErrorKind::command_line, f);
}

void expect_ranks(const Ranks& ranks, std::int64_t world, std::int64_t of_node,
                  std::int64_t nodes) {
  EXPECT_EQ(ranks.world_size, world);
  EXPECT_EQ(ranks.ranks_per_node, of_node);
  EXPECT_EQ(ranks.num_nodes, nodes);
}

TEST(RanksOfAJob, AreNodesTimesRanksOfANode) {
  const Machine machine = eight_gpus();
  expect_ranks(ranks_of({{}, 2, 4}, nullptr), 8, 4, 2);
  expect_ranks(ranks_of({{}, 2, 4}, &machine), 8, 4, 2);
  expect_ranks(ranks_of({8, 2, 4}, &machine), 8, 4, 2);
  expect_ranks(ranks_of({8, 2, {}}, nullptr), 8, 4, 2);
  expect_ranks(ranks_of({8, {}, 4}, nullptr), 8, 4, 2);
}

TEST(RanksOfAJob, FillTheNodesOfAMachineWhereNobodySaysMore) {
  const Machine machine = eight_gpus();
  expect_ranks(ranks_of({}, &machine), 8, 8, 1);
  expect_ranks(ranks_of({{}, 3, {}}, &machine), 24, 8, 3);
  expect_ranks(ranks_of({16, {}, {}}, &machine), 16, 8, 2);
  expect_ranks(ranks_of({2, {}, {}}, &machine), 2, 2, 1);
}

TEST(RanksOfAJob, LieOnOneNodeWhereNobodyKnowsTheMachine) {
  expect_ranks(ranks_of({}, nullptr), 1, 1, 1);
  expect_ranks(ranks_of({6, {}, {}}, nullptr), 6, 6, 1);
  expect_ranks(ranks_of({{}, {}, 4}, nullptr), 4, 4, 1);
  expect_ranks(ranks_of({{}, 3, {}}, nullptr), 3, 1, 3);
}

TEST(RanksOfAJob, MayLeaveTheLastNodeWithFewer) {
  const Machine machine = eight_gpus();
  const Ranks ranks = ranks_of({20, {}, {}}, &machine);
  expect_ranks(ranks, 20, 8, 3);
  EXPECT_FALSE(ranks.is_even);
  EXPECT_TRUE(ranks_of({4, {}, 8}, nullptr).is_even) << "one node";
  EXPECT_FALSE(ranks_of({9, 4, {}}, nullptr).is_even);
}

TEST(RanksOfAJob, ThatContradictEachOtherAreRefused) {
  const Machine machine = eight_gpus();
  EXPECT_NE(refusal([] {
              ranks_of({9, 2, 4}, nullptr);
            }).find("2 x 4 are 8 ranks"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              ranks_of({2, 4, {}}, nullptr);
            }).find("a node would have no rank"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              ranks_of({16, 1, {}}, &machine);
            }).find("Say --nodes 2 or more"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              ranks_of({{}, 1, 9}, &machine);
            }).find("it has 8 GPUs"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              ranks_of({{}, 1 << 24, 1 << 16}, nullptr);
            }).find("16,777,216"),
            std::string::npos);
}

TEST(RanksOfAJob, ThatDoNotFillTheirNodesHaveNoJobscript) {
  const Machine machine = eight_gpus();
  EXPECT_NO_THROW(require_even(ranks_of({16, {}, {}}, &machine)));
  const std::string message = refusal([&] { require_even(ranks_of({20, {}, {}}, &machine)); });
  EXPECT_NE(message.find("--ranks 16 or 24 with --ranks-per-node 8, or --ranks-per-node 5 for 4 "
                         "nodes"),
            std::string::npos)
      << message;
}

TEST(StepsOfARun, AreThoseOfItsEpochs) {
  EXPECT_EQ(steps_of(1000, 64, 1), 16);
  EXPECT_EQ(steps_of(1024, 64, 3), 48);
  EXPECT_EQ(steps_of(1, 64, 3), 3);
  EXPECT_GT(steps_of(1000, 1, 1e300), 0) << "too many to count";
}

TEST(StepsOfARun, EndAPartOfAnEpochAtTheNextWholeStep) {
  EXPECT_EQ(steps_of(1000, 64, 0.5), 8);
  EXPECT_EQ(steps_of(1001, 100, 0.5), 6);
  EXPECT_EQ(steps_of(1000, 64, 2.25), 36);
  EXPECT_EQ(steps_of(1000, 64, 1e-9), 1);
  EXPECT_EQ(steps_of(1000, 100, 1.1), 11) << "1.1 * 10 is a little more than 11";
  EXPECT_EQ(steps_of(std::int64_t{1} << 40, 1, 3), std::int64_t{3} << 40);
}

TEST(WhatAJobAsksFor, IsARanksPartOfTheCores) {
  Machine machine = eight_gpus();
  EXPECT_EQ(cores_per_rank(machine, ranks_of({1, {}, {}}, &machine)), 14);
  EXPECT_EQ(cores_per_rank(machine, ranks_of({16, {}, {}}, &machine)), 14);
  machine.gpus_per_node = 0;
  EXPECT_EQ(cores_per_rank(machine, ranks_of({{}, {}, 2}, &machine)), 56);
  EXPECT_EQ(cores_per_rank(machine, ranks_of({{}, {}, 200}, &machine)), 1);
}

TEST(WhatAJobAsksFor, IsItsPartOfAGpuNodesMemoryOrWhatItNeedsIfThatIsMore) {
  const Machine machine = eight_gpus();
  const Ranks one = ranks_of({1, {}, {}}, &machine), all = ranks_of({}, &machine);
  const auto bytes = [](double of_gib) { return static_cast<std::int64_t>(of_gib * gib); };
  EXPECT_EQ(node_memory_to_ask(machine, one, bytes(0.3)), bytes(0.9 * 125));
  EXPECT_EQ(node_memory_to_ask(machine, one, bytes(300)), bytes(300));
  EXPECT_EQ(node_memory_to_ask(machine, all, bytes(2)), bytes(900));
  EXPECT_EQ(node_memory_to_ask(machine, all, bytes(2000)), bytes(1000)) << "the node has no more";
}

TEST(WhatAJobAsksFor, LeavesMemoryOutWhereNobodyKnowsThatOfAGpuNode) {
  Machine machine = eight_gpus();
  machine.node_memory_gib = 0;
  EXPECT_EQ(node_memory_to_ask(machine, ranks_of({}, &machine), 1000), 0);
  EXPECT_EQ(usable_host_bytes(machine, 8), 0);
  machine.gpus_per_node = 0;
  EXPECT_EQ(node_memory_to_ask(machine, ranks_of({}, &machine), 1000), 1000);
}

}  // namespace
}  // namespace finetune::plan::job_test
