// SPDX-License-Identifier: Apache-2.0
#include "plan/memory.hpp"

#include <gtest/gtest.h>

#include "unit/plan/small_model.hpp"

namespace finetune::plan {
namespace {

using tests::block_table;
using tests::request;

/// Bytes of the category whose name begins so; -1 if there is none.
std::int64_t bytes_of(const Plan& plan, const std::string& beginning) {
  for (const MemoryItem& item : plan.memory) {
    if (item.name.starts_with(beginning)) return item.bytes;
  }
  return -1;
}

TEST(Memory, IsTheSumOfItsCategories) {
  const Plan plan = make(request(2), block_table(16));
  std::int64_t sum = 0;
  for (const MemoryItem& item : plan.memory) {
    EXPECT_GT(item.bytes, 0) << item.name;
    sum += item.bytes;
  }
  EXPECT_EQ(plan.memory_bytes(), sum);
}

TEST(Memory, HoldsMasterWeightsMomentsAndGradientsInFp32) {
  const Plan plan = make(request(3), block_table(16));
  const std::int64_t shard = 16 * ((1001 * 1001 + 1001 + 2) / 3);
  EXPECT_EQ(bytes_of(plan, "master weights"), 4 * shard);
  EXPECT_EQ(bytes_of(plan, "AdamW moments"), 8 * shard);
  EXPECT_EQ(bytes_of(plan, "gradient sums"), 4 * shard);
  EXPECT_EQ(bytes_of(plan, "weights to compute with"), 2 * shard);
}

TEST(Memory, ShrinksWithTheRanks) {
  for (const core::DType dtype : {core::DType::bf16, core::DType::f32}) {
    std::int64_t before = make(request(1, dtype), block_table(16)).memory_bytes();
    for (const std::int64_t ranks : {2, 3, 4, 8}) {
      const std::int64_t bytes = make(request(ranks, dtype), block_table(16)).memory_bytes();
      EXPECT_LT(bytes, before) << ranks << " ranks";
      before = bytes;
    }
  }
}

TEST(Memory, OfOneRankInFp32NeedsNoCopies) {
  const Plan plan = make(request(1, core::DType::f32), block_table(16));
  EXPECT_EQ(bytes_of(plan, "weights to compute with"), -1);
  EXPECT_EQ(bytes_of(plan, "gathered units"), -1);
  EXPECT_EQ(bytes_of(plan, "gradients of open units"), -1);
}

TEST(Memory, OfActivationsGrowsWithTheTokensOfAPass) {
  Request larger = request(2);
  larger.micro_batch *= 3;
  const auto kept = "activations kept for backward";
  EXPECT_EQ(bytes_of(make(larger, block_table(16)), kept),
            3 * bytes_of(make(request(2), block_table(16)), kept));
}

TEST(Memory, OfLogitsStopsGrowingAtAChunk) {
  Request larger = request(2);
  larger.max_seq_length = 1 << 20;
  EXPECT_EQ(bytes_of(make(larger, block_table(16)), "logits"), 2 * 1024 * 1000);
}

}  // namespace
}  // namespace finetune::plan
