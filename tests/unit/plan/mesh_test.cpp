// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/mesh.hpp"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "core/error.hpp"
#include "support/errors.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::mesh_test {
namespace {

using tests::ranks_on_nodes;

ParallelSettings settings(const std::string& sharding, std::int64_t dp_shard = 0,
                          std::int64_t dp_replicate = 0) {
  ParallelSettings parallel;
  parallel.sharding = sharding_named(sharding);
  parallel.dp_shard = dp_shard;
  parallel.dp_replicate = dp_replicate;
  return parallel;
}

std::string refusal(const ParallelSettings& parallel, const Ranks& ranks) {
  return tests::refusal_of(
      core::ErrorKind::deck, [&] { make_mesh(parallel, ranks, "input.toml"); }, "nothing thrown");
}

/// A mesh as text: "HYBRID_SHARD 4 x 2" is four copies over two ranks each.
std::string mesh(const ParallelSettings& parallel, const Ranks& ranks) {
  const Mesh found = make_mesh(parallel, ranks);
  EXPECT_EQ(found.size(), ranks.world_size);
  return to_string(found.sharding) + " " + std::to_string(found.size(groups::dp_replicate)) +
         " x " + std::to_string(found.size(groups::fsdp));
}

/// Every rank of 2 x 2 x 2 x 2, and who is with it.
TEST(Axes, OfAGroupVaryWhileTheOthersStay) {
  AxisSizes sizes;
  for (const Axis axis : {Axis::dp_replicate, Axis::dp_shard, Axis::cp, Axis::tp})
    sizes[axis] = 2;
  ASSERT_EQ(sizes.size(), 16);
  const auto members = [&](const MeshGroup& group, std::int64_t position) {
    std::vector<std::int64_t> found;
    for (std::int64_t other = 0; other < 16; ++other)
      if (sizes.place(group, other).group == sizes.place(group, position).group)
        found.push_back(other);
    return found;
  };
  using Members = std::vector<std::int64_t>;
  EXPECT_EQ(members(groups::fsdp, 0), (Members{0, 2, 4, 6}));
  EXPECT_EQ(members(groups::fsdp, 13), (Members{9, 11, 13, 15}));
  EXPECT_EQ(members(groups::dp_replicate, 5), (Members{5, 13}));
  EXPECT_EQ(members(groups::batch, 1), (Members{1, 5, 9, 13}));
  EXPECT_EQ(members({"tp", {Axis::tp}}, 7), (Members{6, 7}));
  EXPECT_EQ(sizes.stride(groups::fsdp), 2);
  EXPECT_EQ(sizes.stride(groups::dp_replicate), 8);
}

/// Of any sizes: groups are as large as their axes, and a rank's number is its place in order.
TEST(Axes, PutEachRankIntoOneGroup) {
  AxisSizes sizes;
  sizes[Axis::dp_replicate] = 3;
  sizes[Axis::dp_shard] = 4;
  sizes[Axis::tp] = 2;
  for (const MeshGroup& group : {groups::batch, groups::fsdp, groups::dp_replicate}) {
    std::map<std::int64_t, std::int64_t> seen;
    for (std::int64_t position = 0; position < sizes.size(); ++position) {
      const auto place = sizes.place(group, position);
      EXPECT_EQ(place.number, seen[place.group]++) << group.name << ", position " << position;
    }
    EXPECT_EQ(std::ssize(seen), sizes.size() / sizes.size(group)) << group.name;
    for (const auto& [number, count] : seen)
      EXPECT_EQ(count, sizes.size(group)) << group.name << " " << number;
  }
}

TEST(Mesh, FillsTheWorldWhateverItsSize) {
  for (std::int64_t world = 1; world <= 64; ++world) {
    for (const std::int64_t per_node : {1, 2, 3, 4, 8}) {
      const Ranks ranks = ranks_on_nodes(world, per_node);
      EXPECT_EQ(make_mesh(settings("FULL_SHARD"), ranks).size(groups::fsdp), world);
      EXPECT_EQ(make_mesh(settings("SHARD_GRAD_OP"), ranks).size(groups::fsdp), world);
      EXPECT_EQ(make_mesh(settings("NO_SHARD"), ranks).size(groups::dp_replicate), world);
      EXPECT_EQ(make_mesh(settings("AUTO"), ranks).size(), world);
      if (!ranks.is_even) continue;
      EXPECT_EQ(make_mesh(settings("HYBRID_SHARD"), ranks).size(groups::dp_replicate),
                ranks.num_nodes);
    }
  }
}

TEST(Mesh, IsRefusedExactlyWhereASizeDoesNotDivide) {
  for (std::int64_t world = 1; world <= 24; ++world) {
    for (std::int64_t size = 1; size <= 25; ++size) {
      const Ranks ranks = ranks_on_nodes(world, 4);
      for (const auto& parallel : {settings("FULL_SHARD", size), settings("HYBRID_SHARD", 0, size),
                                   settings("AUTO", size)}) {
        if (world % size == 0) {
          EXPECT_EQ(make_mesh(parallel, ranks).size(), world);
        } else {
          EXPECT_THROW(make_mesh(parallel, ranks), core::Error) << size << " of " << world;
        }
      }
    }
  }
}

TEST(Mesh, ShardsInsideEvenNodesOfSeveralRanksByDefault) {
  EXPECT_EQ(mesh(settings("AUTO"), ranks_on_nodes(8, 2)), "HYBRID_SHARD 4 x 2");
  EXPECT_EQ(mesh(settings("AUTO"), ranks_on_nodes(4, 8)), "FULL_SHARD 1 x 4");
  EXPECT_EQ(mesh(settings("AUTO"), ranks_on_nodes(4, 1)), "FULL_SHARD 1 x 4");
  EXPECT_EQ(mesh(settings("AUTO"), ranks_on_nodes(5, 2)), "FULL_SHARD 1 x 5");
  EXPECT_EQ(mesh(settings("AUTO"), ranks_on_nodes(1, 1)), "FULL_SHARD 1 x 1");
}

TEST(Mesh, NamesWhatTheDecksNumbersMake) {
  EXPECT_EQ(mesh(settings("AUTO", 1), ranks_on_nodes(4, 4)), "NO_SHARD 4 x 1");
  EXPECT_EQ(mesh(settings("AUTO", 2), ranks_on_nodes(4, 4)), "HYBRID_SHARD 2 x 2");
  EXPECT_EQ(mesh(settings("AUTO", 4), ranks_on_nodes(4, 2)), "FULL_SHARD 1 x 4");
}

TEST(Mesh, OneAxisFollowsFromTheOther) {
  EXPECT_EQ(mesh(settings("HYBRID_SHARD", 4), ranks_on_nodes(8, 2)), "HYBRID_SHARD 2 x 4");
  EXPECT_EQ(mesh(settings("HYBRID_SHARD", 0, 2), ranks_on_nodes(8, 2)), "HYBRID_SHARD 2 x 4");
  EXPECT_EQ(mesh(settings("HYBRID_SHARD", 4, 2), ranks_on_nodes(8, 2)), "HYBRID_SHARD 2 x 4");
}

TEST(Mesh, OfFullShardMayHaveCopiesByHand) {
  EXPECT_EQ(mesh(settings("FULL_SHARD", 2), ranks_on_nodes(6, 6)), "FULL_SHARD 3 x 2");
  EXPECT_EQ(mesh(settings("SHARD_GRAD_OP", 0, 2), ranks_on_nodes(6, 6)), "SHARD_GRAD_OP 2 x 3");
}

TEST(Mesh, RefusesASizeThatDoesNotDivideAndNamesThoseThatDo) {
  EXPECT_EQ(
      refusal(settings("FULL_SHARD", 3), ranks_on_nodes(8, 8)),
      "input.toml: parallel.dp_shard = 3 does not divide 8 ranks (each copy of the model lies "
      "on so many ranks). Use 1, 2, 4 or 8, or start a multiple of 3 ranks.");
  EXPECT_EQ(refusal(settings("AUTO", 0, 4), ranks_on_nodes(6, 6)),
            "input.toml: parallel.dp_replicate = 4 does not divide 6 ranks (each copy of the model "
            "lies on as many ranks). Use 1, 2, 3 or 6, or start a multiple of 4 ranks.");
  EXPECT_NE(refusal(settings("HYBRID_SHARD", 2), ranks_on_nodes(1, 1))
                .find("does not divide 1 rank (each copy of the model lies on so many ranks). Use "
                      "1, or start a multiple of 2 ranks."),
            std::string::npos);
}

TEST(Mesh, OfManyRanksNamesTheSizesNearby) {
  const std::string text = refusal(settings("FULL_SHARD", 50), ranks_on_nodes(720720, 8));
  EXPECT_NE(text.find("Use 42, 44, 45, 48, 52, 55, 56 or 60, or"), std::string::npos) << text;
}

TEST(Mesh, RefusesAxesWhoseProductIsNotTheWorld) {
  EXPECT_EQ(refusal(settings("HYBRID_SHARD", 2, 2), ranks_on_nodes(8, 4)),
            "input.toml: parallel.dp_shard = 2 times parallel.dp_replicate = 2 is not 8 ranks "
            "(every rank has its place in the mesh). Set one of them and leave the other 0: "
            "dp_shard = 2 means dp_replicate = 4.");
}

TEST(Mesh, RefusesSharesOfWhatIsNotShared) {
  EXPECT_EQ(refusal(settings("NO_SHARD", 2), ranks_on_nodes(4, 4)),
            "input.toml: parallel.dp_shard = 2 contradicts parallel.sharding = \"NO_SHARD\" (it "
            "keeps a whole copy of the model on every rank). Remove it, or use FULL_SHARD or "
            "HYBRID_SHARD.");
  EXPECT_NE(refusal(settings("NO_SHARD", 0, 2), ranks_on_nodes(4, 4))
                .find("parallel.dp_replicate = 2 contradicts"),
            std::string::npos);
  EXPECT_EQ(mesh(settings("NO_SHARD", 1, 4), ranks_on_nodes(4, 4)), "NO_SHARD 4 x 1");
}

TEST(Mesh, RefusesUnevenNodesForHybridShardUnlessTheDeckNamesASize) {
  EXPECT_EQ(refusal(settings("HYBRID_SHARD"), ranks_on_nodes(6, 4)),
            "input.toml: parallel.sharding = \"HYBRID_SHARD\" needs as many ranks on every node, "
            "and 6 ranks on 2 nodes are not (a copy of the model is split over the ranks of a "
            "node). Start as many ranks on every node, set parallel.dp_shard to 1, 2, 3 or 6, or "
            "use FULL_SHARD.");
  EXPECT_EQ(mesh(settings("HYBRID_SHARD", 3), ranks_on_nodes(6, 4)), "HYBRID_SHARD 2 x 3");
}

ParallelSettings shared(const std::string& sharding, std::int64_t tp, std::int64_t cp,
                        std::int64_t dp_shard = 0) {
  ParallelSettings parallel = settings(sharding, dp_shard);
  parallel.tp = tp;
  parallel.cp = cp;
  return parallel;
}

TEST(Mesh, RefusesAHybridShardWhoseGroupsCannotFillANode) {
  EXPECT_EQ(refusal(shared("HYBRID_SHARD", 1, 3), ranks_on_nodes(24, 8)),
            "input.toml: parallel.sharding = \"HYBRID_SHARD\" cannot split nodes of 8 ranks into "
            "groups of 3 (parallel.tp times parallel.cp ranks compute each sample together, and a "
            "copy of the model is split over the groups of a node). Let tp times cp be 1, 2, 4 or "
            "8, set parallel.dp_shard to 1, 2, 4 or 8, or use FULL_SHARD.");
  EXPECT_EQ(mesh(shared("HYBRID_SHARD", 1, 3, 4), ranks_on_nodes(24, 8)), "HYBRID_SHARD 2 x 12");
  EXPECT_EQ(mesh(shared("HYBRID_SHARD", 2, 2), ranks_on_nodes(16, 8)), "HYBRID_SHARD 2 x 4");
  EXPECT_EQ(mesh(shared("HYBRID_SHARD", 1, 16), ranks_on_nodes(32, 8)), "HYBRID_SHARD 2 x 16");
  EXPECT_EQ(mesh(shared("AUTO", 1, 3), ranks_on_nodes(24, 8)), "FULL_SHARD 1 x 24")
      << "which splits no node";
}

TEST(Mesh, SpeaksOfGroupsWhereRanksComputeSamplesTogether) {
  EXPECT_EQ(refusal(shared("FULL_SHARD", 2, 1, 3), ranks_on_nodes(8, 8)),
            "input.toml: parallel.dp_shard = 3 does not divide the 4 groups of 2 ranks that "
            "parallel.tp and parallel.cp form (each copy of the model lies on so many groups). Use "
            "1, 2 or 4, or start a multiple of 6 ranks.");
  EXPECT_NE(refusal(shared("FULL_SHARD", 3, 2), ranks_on_nodes(8, 8))
                .find("Let their product be 1, 2, 4 or 8, or start a multiple of 6 ranks."),
            std::string::npos);
  const auto warned = [](const ParallelSettings& parallel, const Ranks& ranks) {
    const auto texts = warnings(make_mesh(parallel, ranks), ranks);
    return texts.empty() ? std::string() : texts.front();
  };
  EXPECT_NE(warned(shared("HYBRID_SHARD", 2, 1, 1), ranks_on_nodes(8, 4))
                .find("each group of 2 ranks keeps a whole copy of the model"),
            std::string::npos);
  EXPECT_NE(warned(shared("HYBRID_SHARD", 2, 1, 4), ranks_on_nodes(16, 4))
                .find("Inside a node: parallel.dp_shard = 1 or 2."),
            std::string::npos);
  EXPECT_NE(warned(shared("HYBRID_SHARD", 1, 3, 4), ranks_on_nodes(24, 8))
                .find("Copies fit into a node where tp times cp divides 8."),
            std::string::npos);
  EXPECT_NE(warned(shared("HYBRID_SHARD", 4, 1), ranks_on_nodes(4, 4)).find("lower parallel.tp"),
            std::string::npos);
}

TEST(Mesh, WarnsOfCopiesAcrossNodes) {
  const auto texts = [](const ParallelSettings& parallel, const Ranks& ranks) {
    return warnings(make_mesh(parallel, ranks), ranks);
  };
  const auto across = texts(settings("HYBRID_SHARD", 4), ranks_on_nodes(8, 2));
  ASSERT_EQ(across.size(), 1u);
  EXPECT_EQ(across[0],
            "parallel.dp_shard = 4: copies of the model lie across nodes of 2 ranks (every gather "
            "of weights then crosses the network between nodes). Inside a node: 1 or 2.");
  EXPECT_EQ(texts(settings("HYBRID_SHARD", 3), ranks_on_nodes(6, 4)).size(), 1u);
  EXPECT_TRUE(texts(settings("HYBRID_SHARD", 2), ranks_on_nodes(8, 4)).empty());
  EXPECT_TRUE(texts(settings("HYBRID_SHARD"), ranks_on_nodes(8, 4)).empty());
  EXPECT_TRUE(texts(settings("FULL_SHARD"), ranks_on_nodes(8, 4)).empty()) << "that is what it is";
}

TEST(Mesh, WarnsOfAHybridThatSplitsNothing) {
  const Ranks ranks = ranks_on_nodes(3, 1);
  const auto texts = warnings(make_mesh(settings("HYBRID_SHARD"), ranks), ranks);
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_NE(texts[0].find("splits nothing"), std::string::npos) << texts[0];
}

}  // namespace
}  // namespace finetune::plan::mesh_test
