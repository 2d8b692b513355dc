// SPDX-License-Identifier: Apache-2.0
#include "world/world.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "support/ranks.hpp"

namespace finetune::world::world_test {
namespace {

plan::Plan plan_for(std::int64_t ranks) {
  const model::ParameterTable table{.rows = {{.name = "a", .shape = {7}}}, .units = {"a"}};
  plan::PlanInput request;
  request.ranks = {.world_size = ranks, .ranks_per_node = ranks};
  return plan::make(request, table);
}

plan::Mesh mesh_of(std::int64_t dp_replicate, std::int64_t dp_shard) {
  plan::Mesh mesh;
  mesh.axes[plan::Axis::dp_replicate] = dp_replicate;
  mesh.axes[plan::Axis::dp_shard] = dp_shard;
  return mesh;
}

TEST(World, NamesTheGroupsOfARank) {
  const comm::Communicator& all = tests::world();
  const World world = make(tests::mpi(), plan_for(all.size()));
  EXPECT_EQ(world.world.size(), all.size());
  for (const comm::Communicator& group : {world.batch, world.fsdp}) {
    EXPECT_EQ(group.size(), all.size());
    EXPECT_EQ(group.rank(), all.rank());
    EXPECT_EQ(group.all_reduce(std::int64_t{1}, comm::Reduce::sum), all.size());
  }
  EXPECT_EQ(world.batch.name(), "batch");
  EXPECT_EQ(world.fsdp.name(), "fsdp");
  EXPECT_EQ(world.node_index, 0);
}

TEST(World, RefusesAMeshThatDoesNotFillTheJob) {
  const int size = tests::world().size();
  try {
    make(tests::mpi(), plan_for(size + 1));
    ADD_FAILURE() << "a rank without a place was accepted";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::environment);
    const std::string expected = fmt::format("the mesh has {} ranks, the job {}", size + 1, size);
    EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
  }
}

TEST(World, AloneNeedsNoMpi) {
  const World world = make_alone();
  EXPECT_EQ(world.world.size(), 1);
  EXPECT_EQ(world.fsdp.rank(), 0);
  EXPECT_EQ(world.batch.all_reduce(3.0, comm::Reduce::sum), 3.0);
}

TEST(World, TellsWhichRanksShareExperts) {
  plan::Mesh mesh = mesh_of(1, 4);
  mesh.axes[plan::Axis::tp] = 2;
  mesh.ep = 2;
  const comm::Topology topology{.world_size = 8,
                                .num_nodes = 2,
                                .ranks_per_node = 4,
                                .node_names = {"n1", "n2"},
                                .node_of_rank = {0, 0, 0, 0, 1, 1, 1, 1}};
  const std::string text = to_string(mesh, topology);
  EXPECT_NE(text.find("; experts shared by 2 ranks each: (0,2) (4,6) (1,3) (5,7)"),
            std::string::npos)
      << text;
}

TEST(World, TellsWhichRanksAreOnWhichNode) {
  const comm::Topology topology{.world_size = 3,
                                .num_nodes = 2,
                                .ranks_per_node = 2,
                                .node_names = {"n1", "n2"},
                                .node_of_rank = {0, 1, 0}};
  EXPECT_EQ(to_string(mesh_of(1, 3), topology),
            "3 ranks on 2 nodes: n1 (0,2) n2 (1); 1 copy of the model, over ranks (0,1,2)");
  EXPECT_EQ(to_string(mesh_of(3, 1), topology),
            "3 ranks on 2 nodes: n1 (0,2) n2 (1); a copy of the model on every rank");
}

/// Some launchers deal ranks to the nodes in turns.
TEST(World, FormsShardGroupsInsideNodesWhateverTheOrderOfRanks) {
  const comm::Topology topology{.world_size = 4,
                                .num_nodes = 2,
                                .ranks_per_node = 2,
                                .node_names = {"n1", "n2"},
                                .node_of_rank = {0, 1, 0, 1}};
  const plan::Mesh mesh = mesh_of(2, 2);
  const std::vector<std::int64_t> positions_of_ranks = positions(topology);
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected = {
      {0, 0}, {1, 0}, {0, 1}, {1, 1}};
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const auto got = mesh.axes.place(plan::groups::fsdp, positions_of_ranks[rank]);
    EXPECT_EQ(std::pair(got.group, got.number), expected[rank]) << "rank " << rank;
  }
  EXPECT_EQ(to_string(mesh, topology),
            "4 ranks on 2 nodes: n1 (0,2) n2 (1,3); 2 copies of the model, over ranks (0,2) (1,3)");
}

TEST(World, SplitsIntoShardGroupsAndTheirReplicas) {
  const int size = tests::world().size();
  if (size % 2 != 0) GTEST_SKIP() << "needs an even number of ranks";
  plan::Plan plan = plan_for(size);
  plan.mesh = mesh_of(size / 2, 2);
  const World world = make(tests::mpi(), plan);
  EXPECT_EQ(world.fsdp.size(), 2);
  EXPECT_EQ(world.fsdp.rank(), world.world.rank() % 2);
  EXPECT_EQ(world.dp_replicate.size(), size / 2);
  EXPECT_EQ(world.dp_replicate.rank(), world.world.rank() / 2);
  EXPECT_EQ(world.dp_replicate.name(), "dp_replicate");
}

/// Parts of a matrix lie closest together; no deck can choose them yet.
TEST(World, HasGroupsOfAxesThatNoDeckHas) {
  const int size = tests::world().size();
  if (size != 4) GTEST_SKIP() << "needs four ranks";
  for (const plan::Axis inner : {plan::Axis::cp, plan::Axis::tp}) {
    plan::Plan plan = plan_for(size);
    plan.mesh = mesh_of(1, 2);
    plan.mesh.axes[inner] = 2;
    const World world = make(tests::mpi(), plan);
    const int rank = world.world.rank();
    const bool is_cp = inner == plan::Axis::cp;
    EXPECT_EQ(world.batch.size(), 2) << "parts of a sequence or matrix see the same samples";
    EXPECT_EQ(world.batch.rank(), rank / 2);
    EXPECT_EQ(world.fsdp.size(), is_cp ? 4 : 2);
    EXPECT_EQ(world.fsdp.rank(), is_cp ? rank : rank / 2);
    EXPECT_EQ(world.dp_replicate.size(), 1);
  }
}

TEST(World, CutsTheListOfNodesShort) {
  comm::Topology topology{
      .world_size = 18, .num_nodes = 18, .ranks_per_node = 1, .node_names = {}, .node_of_rank = {}};
  for (int i = 0; i < 18; ++i) {
    topology.node_names.push_back(fmt::format("n{}", i));
    topology.node_of_rank.push_back(i);
  }
  const std::string text = to_string(mesh_of(1, 18), topology);
  EXPECT_NE(text.find(" n15 (15) and 2 more;"), std::string::npos) << text;
}

}  // namespace
}  // namespace finetune::world::world_test
