// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <gtest/gtest.h>

#include "unit/plan/small_model.hpp"

namespace finetune::plan {
namespace {

using tests::block_table;

Plan plan_of(std::int64_t ranks, std::int64_t global_batch, std::int64_t micro_batch) {
  Request request = tests::request(ranks);
  request.global_batch = global_batch;
  request.micro_batch = micro_batch;
  return make(request, block_table(2));
}

TEST(Plan, CountsParametersWithoutPadding) {
  EXPECT_EQ(plan_of(3, 8, 1).num_parameters, 2 * (1001 * 1001 + 1001));
}

TEST(Plan, ShardsOverAllRanks) {
  const Plan plan = plan_of(3, 8, 1);
  EXPECT_EQ(plan.mesh.dp_shard, 3);
  EXPECT_EQ(plan.shards.num_shards(), 3);
}

TEST(Plan, AccumulatesUntilTheGlobalBatchIsThere) {
  EXPECT_EQ(plan_of(1, 8, 1).batch.accumulation, 8);
  EXPECT_EQ(plan_of(2, 8, 2).batch.accumulation, 2);
  EXPECT_EQ(plan_of(4, 8, 2).batch.accumulation, 1);
}

TEST(Plan, RoundsUpMicroBatchesAndPasses) {
  const Plan plan = plan_of(2, 8, 3);
  EXPECT_EQ(plan.batch.num_micro_batches, 3);
  EXPECT_EQ(plan.batch.accumulation, 2);
  EXPECT_EQ(plan_of(5, 8, 3).batch.accumulation, 1);
}

TEST(Plan, BoundsTheTokensOfAStep) {
  EXPECT_EQ(plan_of(2, 8, 3).batch.max_tokens_per_step(), 8 * 32);
}

TEST(Plan, TellsAPersonBatchRanksAndMemory) {
  const std::string text = to_string(plan_of(4, 8, 2));
  for (const char* part :
       {"parameters               2,006,004\n", "ranks                    4 on 2 nodes\n",
        "FULL_SHARD: 1 copy of the model, each over 4 ranks\n",
        "8 sequences = 4 micro-batches of 2, 1 pass per rank, at most 256 tokens\n",
        " at the peak of a step\n", "    weights ", "  master copy, fp32\n", "    other "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "is not in\n" << text;
  }
  EXPECT_EQ(text.find("idle"), std::string::npos) << text;
  EXPECT_NE(text.back(), '\n');
}

TEST(Plan, NamesIdlePasses) {
  const std::string text = to_string(plan_of(2, 8, 3));
  EXPECT_NE(text.find("1 of 4 passes idle"), std::string::npos) << text;
}

TEST(Plan, ListsTheHostsMemoryApart) {
  Request request = tests::request(1);
  request.on_gpu = request.offloads_optimizer = true;
  const std::string text = to_string(make(request, block_table(2)));
  EXPECT_NE(text.find("host memory per rank"), std::string::npos) << text;
  EXPECT_LT(text.find("host memory per rank"), text.find("AdamW moments")) << text;
}

TEST(Plan, GroupsUnitsByTheBucketOfTheDeck) {
  Request request = tests::request(1);
  request.parallel.bucket = "LAYER";
  EXPECT_EQ(make(request, block_table(2)).shards.units().size(), 4u);
}

TEST(Plan, SpeaksOfOneRankInTheSingular) {
  const std::string text = to_string(plan_of(1, 8, 2));
  EXPECT_NE(text.find("1 on 1 node\n"), std::string::npos) << text;
  EXPECT_NE(text.find("over 1 rank\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace finetune::plan
