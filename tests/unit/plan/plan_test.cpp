// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "support/errors.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::plan_test {
namespace {

using tests::block_table;

Plan plan_of(std::int64_t ranks, std::int64_t global_batch, std::int64_t micro_batch) {
  PlanInput request = tests::request(ranks);
  request.global_batch = global_batch;
  request.micro_batch = micro_batch;
  return make(request, block_table(2));
}

TEST(Plan, CountsParametersWithoutPadding) {
  EXPECT_EQ(plan_of(3, 8, 1).num_parameters, 2 * (1001 * 1001 + 1001));
}

TEST(Plan, ShardsOverAllRanks) {
  const Plan plan = plan_of(3, 8, 1);
  EXPECT_EQ(plan.mesh.size(groups::fsdp), 3);
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
        "FULL_SHARD: 1 copy of the model over 4 ranks\n",
        "8 sequences = 4 micro-batches of 2, 1 pass per rank, at most 256 tokens\n",
        " at the peak of a step\n", "    weights ", "  master copy, fp32\n", "    other "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "is not in\n" << text;
  }
  EXPECT_EQ(text.find("idle"), std::string::npos) << text;
  EXPECT_NE(text.back(), '\n');
}

/// Of `plan.warnings` those with `words`.
std::vector<std::string> warnings_with(const Plan& plan, const std::string& words) {
  std::vector<std::string> found;
  for (const std::string& text : plan.warnings)
    if (text.find(words) != std::string::npos) found.push_back(text);
  return found;
}

TEST(Plan, WarnsOfRanksThatHaveNothingToComputeAndSaysWhatWouldHelp) {
  const auto idle = warnings_with(plan_of(16, 8, 1), "nothing to compute");
  ASSERT_EQ(idle.size(), 1U);
  EXPECT_NE(idle[0].find("8 of 16 ranks"), std::string::npos) << idle[0];
  EXPECT_NE(idle[0].find("train.global_batch = 16,"), std::string::npos) << idle[0];
  const auto large = warnings_with(plan_of(4, 64, 32), "nothing to compute");
  ASSERT_EQ(large.size(), 1U);
  EXPECT_NE(large[0].find("train.global_batch = 128 or train.micro_batch = 16"), std::string::npos)
      << large[0];
  EXPECT_TRUE(warnings_with(plan_of(4, 64, 2), "nothing to compute").empty());
  EXPECT_TRUE(warnings_with(plan_of(3, 1000, 1), "nothing to compute").empty()) << "2 of 1,002";
}

TEST(Plan, WarnsOfASmallBatchOnSeveralRanks) {
  EXPECT_EQ(warnings_with(plan_of(2, 31, 1), "is small for 2 ranks").size(), 1U);
  EXPECT_TRUE(plan_of(2, 32, 1).warnings.empty());
  EXPECT_TRUE(plan_of(1, 1, 1).warnings.empty());
}

TEST(Plan, RefusesAStepThatNobodyWouldWaitFor) {
  EXPECT_NO_THROW(require_sane_batch(plan_of(2, 32768, 1), "deck.toml"));
  EXPECT_EQ(tests::error_of(core::ErrorKind::deck,
                            [] { require_sane_batch(plan_of(2, 32769, 1), "deck.toml"); }),
            "deck.toml: train.global_batch = 32,769 is 16,385 passes of 1 sequence per rank and "
            "step (16,384 is the most, or the first step would seem to hang). Use 32,768 or less "
            "on 2 ranks.");
}

TEST(Plan, NamesIdlePasses) {
  const std::string text = to_string(plan_of(2, 8, 3));
  EXPECT_NE(text.find("1 of 4 passes idle"), std::string::npos) << text;
}

TEST(Plan, ListsTheHostsMemoryApart) {
  PlanInput request = tests::request(1);
  request.on_gpu = request.offloads_optimizer = true;
  const std::string text = to_string(make(request, block_table(2)));
  EXPECT_NE(text.find("host memory per rank"), std::string::npos) << text;
  EXPECT_LT(text.find("host memory per rank"), text.find("AdamW moments")) << text;
}

TEST(Plan, GroupsUnitsByTheBucketOfTheDeck) {
  PlanInput request = tests::request(1);
  request.parallel.bucket = Bucket::layer;
  EXPECT_EQ(make(request, block_table(2)).shards.units().size(), 4u);
}

TEST(Plan, SpeaksOfOneRankInTheSingular) {
  const std::string text = to_string(plan_of(1, 8, 2));
  EXPECT_NE(text.find("1 on 1 node\n"), std::string::npos) << text;
  EXPECT_NE(text.find("over 1 rank\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace finetune::plan::plan_test
