// SPDX-License-Identifier: Apache-2.0
#include "plan/machine/detail/rates.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "plan/machine/detail/collectives.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::rates_test {
namespace {

using core::DType;

TEST(Rates, ALargeProductTakesItsFlopsByTheRate) {
  const Rates rates(tests::round_machine(), DType::bf16);
  // 2 x 1000^3 flops at 1 TFLOP/s; its 6 MB pass in 6 us.
  EXPECT_DOUBLE_EQ(rates.seconds(rates.products({1000, 1000, 1000})), 2e-3);
  const Rates fp32(tests::round_machine(), DType::f32);
  EXPECT_DOUBLE_EQ(fp32.seconds(fp32.products({1000, 1000, 1000})), 4e-3);
}

TEST(Rates, AThinProductTakesTheTimeOfItsOperands) {
  const Rates rates(tests::round_machine(), DType::bf16);
  // 1000 x 1: reads 2 bytes of 1000^2 and of 1000, writes 2 of 1000, at 1 TB/s.
  Machine fast = tests::round_machine();
  fast.bf16_tflops = 100;
  const Rates memory_bound(fast, DType::bf16);
  EXPECT_DOUBLE_EQ(memory_bound.products({1000, 1, 1000}).products_s, 2 * 1.002e6 / 1e12);
}

TEST(Rates, AProductOfHalfSizeReachesHalfOfTheRate) {
  Machine machine = tests::round_machine();
  machine.product_half_size = 1000;
  const Rates rates(machine, DType::bf16);
  EXPECT_NEAR(rates.products({1000, 1000, 1000}).products_s, 4e-3, 1e-12);
  EXPECT_NEAR(rates.products({3000, 3000, 3000}).products_s, 54e-3 * 4 / 3, 1e-12);
  EXPECT_NEAR(rates.products({4000, 1000, 250}).products_s, 4e-3, 1e-12)
      << "by the cube root of its flops";
}

TEST(Rates, AGpuHidesTheProgramAndACpuDoesNot) {
  Machine machine = tests::round_machine();
  machine.operation_us = 1000;
  const Rates gpu(machine, DType::bf16);
  EXPECT_DOUBLE_EQ(gpu.seconds(gpu.products({1000, 1000, 1000})), 2e-3);
  EXPECT_DOUBLE_EQ(gpu.seconds(gpu.products({10, 10, 10}, 3)), 3e-3);
  machine.gpus_per_node = 0;
  const Rates cpu(machine, DType::bf16);
  EXPECT_DOUBLE_EQ(cpu.seconds(cpu.products({1000, 1000, 1000})), 3e-3);
}

TEST(Rates, AttentionHasARateOfItsOwnIfItIsKnown) {
  Machine machine = tests::round_machine();
  EXPECT_DOUBLE_EQ(Rates(machine, DType::bf16).attention(1e12, 100).attention_s, 1);
  machine.attention_tflops = 0.25;
  EXPECT_DOUBLE_EQ(Rates(machine, DType::bf16).attention(1e12, 100).attention_s, 4);
  EXPECT_DOUBLE_EQ(Rates(machine, DType::f32).attention(1e12, 100).attention_s, 2)
      << "that of bf16 says nothing of fp32: as products";
  machine.fp32_attention_tflops = 0.125;
  EXPECT_DOUBLE_EQ(Rates(machine, DType::f32).attention(1e12, 100).attention_s, 8);
}

TEST(Rates, AttentionOfAShortSequenceReachesLess) {
  Machine machine = tests::round_machine();
  machine.attention_half_length = 100;
  const Rates rates(machine, DType::bf16);
  EXPECT_DOUBLE_EQ(rates.attention(1e12, 50).attention_s, 2) << "a token of 100 sees 50";
  EXPECT_DOUBLE_EQ(rates.attention(1e12, 150).attention_s, 4.0 / 3);
}

TEST(Rates, AThinSideTakesAsLongAsTheLeast) {
  Machine machine = tests::round_machine();
  machine.product_least_side = 64;
  const Rates rates(machine, DType::bf16);
  const Work thin = rates.products({1000, 16, 1000});
  EXPECT_DOUBLE_EQ(thin.products_s, rates.products({1000, 64, 1000}).products_s);
  EXPECT_DOUBLE_EQ(thin.products_s, rates.products({16, 1000, 1000}).products_s);
  EXPECT_DOUBLE_EQ(thin.flops, 2 * 16e6) << "of them, what the model needs";
}

TEST(Rates, ActivationsTakeTheTimeOfTheirElementsOrOfTheirBytes) {
  Machine machine = tests::round_machine();
  EXPECT_DOUBLE_EQ(Rates(machine, DType::bf16).activations(2e9).memory_s, 2e-3);
  machine.pass_gelements_per_s = 10;
  EXPECT_DOUBLE_EQ(Rates(machine, DType::bf16).activations(2e9).memory_s, 0.1);
  EXPECT_DOUBLE_EQ(Rates(machine, DType::f32).activations(4e9).memory_s, 0.1);
  machine.memory_gb_per_s = 10;
  EXPECT_DOUBLE_EQ(Rates(machine, DType::f32).activations(4e9).memory_s, 0.4);
  EXPECT_DOUBLE_EQ(Rates(machine, DType::bf16).passes(2e9).memory_s, 0.2) << "no activations";
}

constexpr double gb = 1e9;

TEST(Links, OneRankSendsNothing) {
  for (const bool by_mpi : {false, true}) {
    const Links links(tests::round_machine(), by_mpi);
    EXPECT_EQ(links.all_gather_s({}, gb), 0);
    EXPECT_EQ(links.all_reduce_s({}, gb), 0);
    EXPECT_EQ(links.gathered_by_node({}, gb), 0);
    EXPECT_EQ(links.reduced_by_node({}, gb), 0);
  }
}

TEST(Links, InsideANodeEachRankGetsWhatTheOthersHave) {
  for (const bool by_mpi : {false, true}) {
    const Links links(tests::round_machine(), by_mpi);
    EXPECT_DOUBLE_EQ(links.all_gather_s({2, 1, 1}, gb), 0.5 / 100);
    EXPECT_DOUBLE_EQ(links.reduce_scatter_s({4, 1, 1}, gb), 0.75 / 100);
    EXPECT_DOUBLE_EQ(links.all_reduce_s({4, 1, 1}, gb), 2 * 0.75 / 100);
  }
}

TEST(Links, AGatherCrossesToEachNodeOnce) {
  const GroupShape four = {.size = 4, .num_nodes = 2, .groups_per_node = 1};
  const Links rings(tests::round_machine(), false), messages(tests::round_machine(), true);
  EXPECT_DOUBLE_EQ(rings.all_gather_s(four, gb), 0.75 / 10);
  EXPECT_DOUBLE_EQ(rings.gathered_by_node(four, gb), 0.75 * gb);
  // A node sends its half; its ranks read three quarters meanwhile.
  EXPECT_DOUBLE_EQ(messages.gathered_by_node(four, gb), 0.5 * gb);
  EXPECT_DOUBLE_EQ(messages.all_gather_s(four, gb), 0.5 / 10);
  EXPECT_DOUBLE_EQ(messages.gathered_by_node({16, 2, 1}, gb), 0.5 * gb)
      << "as many ranks as may be";
  EXPECT_DOUBLE_EQ(messages.gathered_by_node({4, 4, 1}, gb), 0.75 * gb) << "one rank on each";
}

/// A term of each rank to each rank of the other node, or running sums, there and back in a fixed
/// order: whichever is less.
TEST(Links, ASumTakesTheFewestBytesThatKeepItsBits) {
  const Links messages(tests::round_machine(), true);
  const GroupShape four = {.size = 4, .num_nodes = 2}, sixteen = {.size = 16, .num_nodes = 2};
  const Summed bf16 = {.element_bytes = 2, .sum_bytes = 4};
  const Summed integers = {.element_bytes = 8, .sum_bytes = 8, .any_order = true};
  EXPECT_DOUBLE_EQ(messages.reduced_by_node(four, gb), gb);
  EXPECT_DOUBLE_EQ(messages.reduced_by_node(four, gb, bf16), gb);
  EXPECT_DOUBLE_EQ(messages.reduced_by_node(four, gb, integers), gb / 2);
  EXPECT_DOUBLE_EQ(messages.reduced_by_node(sixteen, gb), gb) << "four times as much by messages";
  EXPECT_DOUBLE_EQ(messages.reduced_by_node(sixteen, gb, bf16), 2 * gb);
  EXPECT_DOUBLE_EQ(messages.reduced_by_node(sixteen, gb, integers), gb / 2);
  EXPECT_DOUBLE_EQ(messages.reduced_by_node({4, 4, 1}, gb), 0.75 * gb) << "one rank on each";
}

TEST(Links, TwiceTheBandwidthTakesHalfTheTimeAndLatencyStays) {
  Machine machine = tests::round_machine();
  const GroupShape eight = {.size = 8, .num_nodes = 4, .groups_per_node = 2};
  for (const bool by_mpi : {false, true}) {
    Machine twice = machine;
    twice.intra_gb_per_s *= 2, twice.inter_gb_per_s *= 2;
    EXPECT_DOUBLE_EQ(Links(machine, by_mpi).all_reduce_s(eight, gb),
                     2 * Links(twice, by_mpi).all_reduce_s(eight, gb));
    machine.inter_latency_us = twice.inter_latency_us = 1e6;
    EXPECT_GT(Links(twice, by_mpi).all_gather_s(eight, 1), 2.9) << "three hops or more";
    machine.inter_latency_us = 0;
  }
}

TEST(Links, MpiCopiesOnTheCoresOfItsNode) {
  const GroupShape four = {.size = 4, .num_nodes = 2, .groups_per_node = 1};
  const Links rings(tests::round_machine(), false), messages(tests::round_machine(), true);
  EXPECT_EQ(rings.gather_copying_s(four, gb), 0);
  EXPECT_DOUBLE_EQ(messages.gather_copying_s(four, gb), 0.75 / 100) << "all that others have";
  EXPECT_DOUBLE_EQ(messages.reduce_copying_s(four, gb), 0.25 / 100)
      << "what the node's others send";
  EXPECT_EQ(messages.reduce_copying_s({.size = 16, .num_nodes = 2}, gb), 0) << "added in place";
  EXPECT_EQ(messages.gather_copying_s({}, gb), 0);
}

TEST(Links, LatencyOfAnAllReduceGrowsWithTheLogarithmOfTheNodes) {
  Machine machine = tests::round_machine();
  machine.inter_latency_us = 10;
  const Links links(machine, false);
  EXPECT_NEAR(links.all_reduce_s({1024, 1024, 1}, 1), 2 * 10 * 10e-6, 1e-6);
  EXPECT_NEAR(links.all_gather_s({1024, 1024, 1}, 1), 1023 * 10e-6, 1e-6);
}

TEST(Links, GroupsFollowTheMesh) {
  const auto mesh_of = [](std::int64_t dp_replicate, std::int64_t dp_shard) {
    Mesh mesh;
    mesh.axes[Axis::dp_replicate] = dp_replicate;
    mesh.axes[Axis::dp_shard] = dp_shard;
    return mesh;
  };
  const Ranks ranks = {.world_size = 16, .ranks_per_node = 4, .num_nodes = 4};
  const Mesh hybrid = mesh_of(4, 4);
  EXPECT_EQ(shape_of(groups::fsdp, hybrid, ranks).num_nodes, 1);
  EXPECT_EQ(shape_of(groups::dp_replicate, hybrid, ranks).num_nodes, 4);
  EXPECT_EQ(shape_of(groups::dp_replicate, hybrid, ranks).groups_per_node, 4)
      << "one for each rank of a node";
  const Mesh pairs = mesh_of(8, 2);
  EXPECT_EQ(shape_of(groups::fsdp, pairs, ranks).groups_per_node, 2);
  EXPECT_EQ(shape_of(groups::dp_replicate, pairs, ranks).groups_per_node, 2);
  const Mesh full = mesh_of(1, 16);
  EXPECT_EQ(shape_of(groups::fsdp, full, ranks).num_nodes, 4);
  EXPECT_EQ(shape_of(groups::fsdp, full, ranks).groups_per_node, 1);
}

/// Nodes of the group that lies on the most, and the groups that leave the node that most leave,
/// counted rank by rank.
GroupShape counted(const MeshGroup& group, const Mesh& mesh, const Ranks& ranks) {
  const std::int64_t num_groups = mesh.size() / mesh.size(group);
  std::vector<std::set<std::int64_t>> nodes(static_cast<std::size_t>(num_groups));
  for (std::int64_t rank = 0; rank < mesh.size(); ++rank)
    nodes[static_cast<std::size_t>(mesh.axes.place(group, rank).group)].insert(
        rank / ranks.ranks_per_node);
  GroupShape shape{.size = mesh.size(group), .num_nodes = 0, .groups_per_node = 0};
  std::map<std::int64_t, std::int64_t> leaving;
  for (const auto& of_group : nodes) {
    shape.num_nodes = std::max(shape.num_nodes, std::ssize(of_group));
    for (const std::int64_t node : of_group)
      if (of_group.size() > 1)
        shape.groups_per_node = std::max(shape.groups_per_node, ++leaving[node]);
  }
  return shape;
}

TEST(Links, GroupsThatDoNotDivideANodeAreThoseOnTheMostNodes) {
  for (const auto& [cp, tp, of_node, num_nodes] :
       std::vector<std::array<std::int64_t, 4>>{{3, 1, 8, 3},
                                                {3, 1, 4, 3},
                                                {3, 2, 8, 3},
                                                {3, 2, 4, 3},
                                                {6, 1, 4, 3},
                                                {5, 1, 8, 5},
                                                {12, 1, 8, 3},
                                                {2, 4, 8, 3},
                                                {4, 2, 4, 4},
                                                {16, 1, 8, 4}}) {
    const Ranks ranks = {of_node * num_nodes, of_node, num_nodes, true};
    Mesh mesh;
    mesh.axes[Axis::cp] = cp;
    mesh.axes[Axis::tp] = tp;
    mesh.axes[Axis::dp_shard] = ranks.world_size / cp / tp;
    const GroupShape expected = counted(groups::cp, mesh, ranks);
    const GroupShape shape = shape_of(groups::cp, mesh, ranks);
    EXPECT_EQ(shape.num_nodes, expected.num_nodes) << cp << " " << tp << " " << of_node;
    if (expected.num_nodes > 1) {
      EXPECT_GE(shape.groups_per_node, expected.groups_per_node)
          << cp << " " << tp << " " << of_node;
      EXPECT_LE(shape.groups_per_node, 2 * tp) << cp << " " << tp << " " << of_node;
    }
  }
}

}  // namespace
}  // namespace finetune::plan::rates_test
