// SPDX-License-Identifier: Apache-2.0
// train.micro_batch = "auto": the fastest of what fits.
#include <gtest/gtest.h>

#include <algorithm>

#include "unit/plan/requests.hpp"

namespace finetune::plan::micro_batch_test {
namespace {

/// Of an 8B model on two nodes of eight H100, four sequences a rank and step.
struct Open {
  PlanInput request = open_8b();
  tests::DecoderTable table;

  explicit Open(const tests::Training& training = {}) : table(request.architecture, training) {
    request.global_batch = 4 * request.ranks.world_size;
    request.chooses_micro_batch = true;
  }
  Site site(std::int64_t available_bytes) const {
    return {shipped("h100-8"), Passes::composed, available_bytes};
  }
  Choice choose(std::int64_t available_bytes) const {
    return plan::choose(request, table.table(), site(available_bytes));
  }
};

TEST(AutomaticMicroBatch, IsTheFastestOfThoseThatLeaveATenthFree) {
  const Open open;
  for (const std::int64_t memory : {75 * gib, 45 * gib, 38 * gib}) {
    const Choice choice = open.choose(memory);
    EXPECT_FALSE(choice.request.chooses_micro_batch);
    ASSERT_GE(choice.batches.size(), 2U);
    const auto taken = std::ranges::find_if(choice.batches, [&](const Strategy& batch) {
      return batch.request.micro_batch == choice.request.micro_batch;
    });
    ASSERT_NE(taken, choice.batches.end());
    EXPECT_EQ(taken->memory_bytes, choice.strategies.front().memory_bytes);
    EXPECT_LE(taken->memory_bytes, memory / 10 * 9 + 10);
    for (const Strategy& other : choice.batches) {
      if (!other.is_comfortable) continue;
      EXPECT_LE(0.99 * taken->time.step_s, other.time.step_s) << other.request.micro_batch;
    }
  }
}

TEST(AutomaticMicroBatch, IsSmallerWhereThereIsLessMemory) {
  const Open open;
  EXPECT_GT(open.choose(75 * gib).request.micro_batch, open.choose(32 * gib).request.micro_batch);
}

TEST(AutomaticMicroBatch, ComparesPowersOfTwoAndAllThatARankHas) {
  Open open({.rank = 8});
  open.request.global_batch = 6 * open.request.ranks.world_size;
  const Choice choice = open.choose(10'000 * gib);
  std::vector<std::int64_t> sizes;
  for (const Strategy& batch : choice.batches)
    sizes.push_back(batch.request.micro_batch);
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{1, 2, 4, 6}));
}

TEST(AutomaticMicroBatch, KeepsActivationsByWhatFitsWithEach) {
  const Open open;
  const Choice choice = open.choose(45 * gib);
  for (const Strategy& batch : choice.batches)
    if (batch.is_comfortable) {
      PlanInput settled = batch.request;
      EXPECT_EQ(make(settled, open.table.table()).memory_bytes(), batch.memory_bytes);
      EXPECT_FALSE(way_of(settled).fits) << "a way says nothing of memory";
    }
  EXPECT_GT(choice.batches.back().request.recomputed_blocks +
                static_cast<std::int64_t>(choice.batches.back().request.activation_checkpointing),
            choice.batches.front().request.recomputed_blocks)
      << "more sequences, more to recompute";
}

TEST(AutomaticMicroBatch, IsOneWhereNothingFitsAndWhereTheMemoryIsNotKnown) {
  const Open open;
  EXPECT_EQ(open.choose(gib).request.micro_batch, 1);
  const Choice unknown = open.choose(0);
  EXPECT_EQ(unknown.request.micro_batch, 1);
  EXPECT_TRUE(unknown.batches.empty());
}

TEST(AutomaticMicroBatch, IsToldWithWhatElseWasThere) {
  const Open open;
  const Choice choice = open.choose(45 * gib);
  const std::string text = to_string(choice, open.request, open.site(45 * gib));
  const auto line = text.find("train.micro_batch");
  ASSERT_NE(line, std::string::npos) << text;
  const std::string rows = text.substr(line, text.find("activation_checkpointing") - line);
  EXPECT_EQ(std::ranges::count(rows, '\n'), std::ssize(choice.batches)) << rows;
  EXPECT_NE(rows.find("(taken)"), std::string::npos) << rows;
}

TEST(AutomaticMicroBatch, OfADeckThatSaysItIsNotCompared) {
  Open open;
  open.request.chooses_micro_batch = false;
  open.request.micro_batch = 2;
  const Choice choice = open.choose(75 * gib);
  EXPECT_EQ(choice.request.micro_batch, 2);
  EXPECT_TRUE(choice.batches.empty());
}

}  // namespace
}  // namespace finetune::plan::micro_batch_test
