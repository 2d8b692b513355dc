// SPDX-License-Identifier: Apache-2.0
#include "plan/detail/sharing.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"
#include "support/messages.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::sharing_test {
namespace {

using tests::DecoderTable;
using tests::Training;

using tests::two_blocks;

/// On nodes of eight ranks.
PlanInput request(const Sharing& sharing) {
  PlanInput request = tests::adamw_request();
  request.deck = "input.toml";
  request.architecture = tests::architecture_of(tests::two_blocks);
  request.parallel.tp = sharing.tp;
  request.parallel.ep = sharing.ep;
  request.ranks = tests::ranks_on_nodes(sharing.ranks, 8);
  return request;
}

/// Why these ranks cannot share it; empty: they can.
std::string problem(const Sharing& sharing, const model::ParameterTable& table) {
  const PlanInput r = request(sharing);
  try {
    mesh_of(r, table);
    EXPECT_TRUE(has_mesh(r, table));
    return "";
  } catch (const core::Error& error) {
    EXPECT_FALSE(has_mesh(r, table));
    EXPECT_EQ(error.kind(), core::ErrorKind::deck);
    return error.what();
  }
}

TEST(SharedMatrices, ThatRanksCannotShareAreNamedWithSizesForTheseRanks) {
  const auto of = [](const Sharing& sharing, const Training& training = {}) {
    return problem(sharing,
                   DecoderTable(tests::architecture_of(tests::two_blocks), training).table());
  };
  // Three ranks could share four heads, but are no part of eight.
  EXPECT_EQ(of({.ranks = 8, .tp = 8}),
            "input.toml: parallel.tp = 8: 8 ranks cannot share the matrices of this model "
            "(model.layers.0.self_attn.q_proj.weight can be cut into 4 parts at most, of 16 rows "
            "each). Use 1, 2 or 4.");
  EXPECT_EQ(of({.ranks = 8, .tp = 4}), "");
}

TEST(SharedMatrices, ThatArePackedLeaveSequencesToShare) {
  // Four ranks would have 24 of the 96 columns of a matrix that is packed 64 by 64.
  const std::string text =
      problem({.ranks = 4, .tp = 4}, DecoderTable(tests::architecture_of(tests::two_blocks),
                                                  {.rank = 4, .packing = model::Packing::Kind::nf4})
                                         .table());
  EXPECT_NE(text.find("is packed in blocks of 64 numbers, some of which would be cut"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("Use 1. Long sequences also fit with parallel.cp = 4, which divides them and "
                      "cuts no matrix."),
            std::string::npos)
      << text;
}

TEST(SharedExperts, AreNoMoreThanThereAre) {
  PlanInput r = request({.ranks = 8, .ep = 8});
  const std::string dense = problem({.ranks = 8, .ep = 8}, DecoderTable(r.architecture).table());
  EXPECT_NE(dense.find("parallel.ep = 8, but the model has no experts"), std::string::npos)
      << dense;
  r.architecture.experts = {.num = 4, .top_k = 2, .d_ff = 48};
  r.architecture.layers = {{.has_experts = true}, {.has_experts = true}};
  const std::string few = problem({.ranks = 8, .ep = 8}, DecoderTable(r.architecture).table());
  EXPECT_NE(few.find("the model has 4 experts per layer (so many ranks share the experts of each "
                     "layer). Use a number up to 4 that divides parallel.dp_shard times "
                     "parallel.cp."),
            std::string::npos)
      << few;
}

TEST(PackedExpertsInOneTensor, AreSharedWhereNoBlockIsCut) {
  const auto of = [](std::int64_t an_expert, const Sharing& sharing) {
    model::ParameterTable table = DecoderTable(tests::architecture_of(tests::two_blocks)).table();
    table.rows.push_back({.name = "experts.down",
                          .shape = {4, an_expert / 8, 8},
                          .trainable = false,
                          .of_experts = model::OfExperts{0, 4, 4},
                          .packing = {.kind = model::Packing::Kind::nf4}});
    return problem(sharing, table);
  };
  EXPECT_EQ(of(96, {.ranks = 2, .ep = 2}), "") << "two experts are three blocks";
  EXPECT_NE(of(80, {.ranks = 2, .ep = 2})
                .find("parallel.ep = 2: 2 ranks cannot share the experts of experts.down"),
            std::string::npos);
  EXPECT_NE(of(96, {.ranks = 4, .ep = 4})
                .find("packed in blocks of 64 numbers, an expert has 96, and some blocks would be "
                      "cut). Use 1 or 2, or a model that is not packed."),
            std::string::npos);
  EXPECT_NE(of(80, {.ranks = 2, .tp = 2}).find("parallel.tp = 2: 2 ranks"), std::string::npos);
}

/// Norms of 64 numbers, which each rank holds, would share a block of 256 moments with its own part
/// of a matrix.
TEST(QuantisedMoments, HaveTheSameBlocksOnRanksThatHoldTheSame) {
  model::Architecture narrow = tests::architecture_of(tests::two_blocks);
  PlanInput r = request({.ranks = 8, .tp = 2});
  r.optimizer = tests::adamw8bit();
  const auto why = [&](const model::Architecture& a) -> std::string {
    try {
      mesh_of(r, DecoderTable(a).table());
      EXPECT_TRUE(has_mesh(r, DecoderTable(a).table()));
      return "";
    } catch (const core::Error& error) {
      EXPECT_FALSE(has_mesh(r, DecoderTable(a).table()));
      EXPECT_EQ(error.kind(), core::ErrorKind::deck);
      return error.what();
    }
  };
  tests::expect_facts(why(narrow), "input.toml",
                      {"adamw8bit", "parallel.tp = 2", "256", "Use parallel.tp = 1",
                       "model.layers.0.input_layernorm.weight"});
  r.optimizer = tests::adamw();
  EXPECT_EQ(why(narrow), "");
  r.optimizer = tests::adamw8bit();
  r.parallel.tp = 1;
  EXPECT_EQ(why(narrow), "");
  // Norms of 256 fill a block each, and what lies between them fills others.
  r.parallel.tp = 2;
  EXPECT_EQ(why(tests::architecture_of({2, 256, 4, 2, 64, 512, 1024})), "");
}

}  // namespace
}  // namespace finetune::plan::sharing_test
