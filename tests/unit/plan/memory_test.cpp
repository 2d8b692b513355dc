// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "model/cost/scratch.hpp"
#include "plan/memory/buffers.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::memory_test {
namespace {

using tests::block_table;
using tests::request;

constexpr std::int64_t block = 1001 * 1001 + 1001;

/// Bytes of the item whose name begins so; -1 if there is none.
std::int64_t bytes_of(const Plan& plan, const std::string& beginning) {
  for (const MemoryItem& item : plan.memory) {
    if (item.name.starts_with(beginning)) return item.bytes;
  }
  return -1;
}

PlanInput with(std::int64_t ranks, const std::string& sharding,
               core::DType dtype = core::DType::bf16) {
  PlanInput changed = request(ranks, dtype);
  changed.parallel.sharding = sharding_named(sharding);
  return changed;
}

TEST(Memory, IsTheSumOfItsItems) {
  const Plan plan = make(request(2), block_table(16));
  std::int64_t sum = 0;
  for (const MemoryItem& item : plan.memory) {
    EXPECT_GT(item.bytes, 0) << item.name;
    sum += item.bytes;
  }
  EXPECT_EQ(plan.memory_bytes(), sum);
  EXPECT_EQ(plan.host_bytes(), 0);
}

TEST(Memory, HasEveryCategoryInOrder) {
  const Plan plan = make(request(2), block_table(16));
  auto last = Category::weights;
  std::int64_t sum = 0;
  for (const MemoryItem& item : plan.memory) {
    EXPECT_GE(item.category, last);
    last = item.category;
  }
  for (int i = 0; i <= static_cast<int>(Category::other); ++i) {
    EXPECT_GT(plan.bytes_of(static_cast<Category>(i)), 0) << to_string(static_cast<Category>(i));
    sum += plan.bytes_of(static_cast<Category>(i));
  }
  EXPECT_EQ(plan.memory_bytes(), sum);
}

TEST(Memory, OfShardsCountsPadding) {
  const Plan plan = make(request(3), block_table(16));
  const std::int64_t shard = 16 * ((block + 2) / 3);
  EXPECT_EQ(bytes_of(plan, "master copy"), 4 * shard);
  EXPECT_EQ(bytes_of(plan, "AdamW moments"), 8 * shard);
  EXPECT_EQ(bytes_of(plan, "sums"), 4 * shard);
  EXPECT_EQ(bytes_of(plan, "copy to compute with"), 2 * shard);
}

TEST(Memory, OfPureBf16NeedsNoSecondCopyOfTheWeights) {
  PlanInput pure = request(1);
  pure.numbers.master = pure.numbers.moments = core::DType::bf16;
  const Plan plan = make(pure, block_table(16));
  EXPECT_EQ(bytes_of(plan, "master copy"), 2 * 16 * block);
  EXPECT_EQ(bytes_of(plan, "AdamW moments"), 4 * 16 * block);
  EXPECT_EQ(bytes_of(plan, "copy to compute with"), -1);
}

TEST(Memory, OfFixedPointSumsGradientsInEightBytes) {
  PlanInput fixed = request(2);
  fixed.numbers.determinism = Determinism::topology;
  const Plan plan = make(fixed, block_table(16));
  EXPECT_EQ(bytes_of(plan, "sums, 64-bit"), 8 * 16 * block / 2);
  EXPECT_EQ(bytes_of(plan, "sums of a unit, fp32"), 4 * block / 2);
}

TEST(Memory, ShrinksWithTheRanks) {
  for (const core::DType dtype : {core::DType::bf16, core::DType::f32}) {
    std::int64_t before = make(request(2, dtype), block_table(64)).memory_bytes();
    for (const std::int64_t ranks : {3, 4, 8}) {
      const std::int64_t bytes = make(request(ranks, dtype), block_table(64)).memory_bytes();
      EXPECT_LT(bytes, before) << ranks << " ranks";
      before = bytes;
    }
  }
}

TEST(Memory, OfSavingBesideTrainingIsACopyOfTheStatesThatReplicasShare) {
  PlanInput saving = with(4, "HYBRID_SHARD");
  saving.parallel.dp_shard = 2;
  saving.ranks = {.world_size = 4, .ranks_per_node = 4, .num_nodes = 1};
  EXPECT_EQ(bytes_of(make(saving, block_table(16)), "copy to be saved"), -1);
  saving.saves_beside_training = true;
  const Plan plan = make(saving, block_table(16));
  EXPECT_EQ(2 * bytes_of(plan, "copy to be saved"),
            bytes_of(plan, "master copy") + bytes_of(plan, "AdamW moments"));
  saving.has_partner_copies = true;
  EXPECT_EQ(bytes_of(make(saving, block_table(16)), "copies for the next node"), -1);
  saving.ranks = {.world_size = 4, .ranks_per_node = 2, .num_nodes = 2};
  const Plan local = make(saving, block_table(16));
  EXPECT_EQ(bytes_of(local, "copies for the next node"), 2 * bytes_of(local, "copy to be saved"));
}

TEST(Memory, OfEvaluatingCountsWhereItsPassesAreLargerThanAStep) {
  PlanInput asked = request(2);
  const std::int64_t trained = make(asked, block_table(16)).memory_bytes();
  asked.evaluate_tokens = asked.max_seq_length;
  EXPECT_EQ(make(asked, block_table(16)).memory_bytes(), trained);
  asked.evaluate_tokens = 1000 * asked.micro_batch * asked.max_seq_length;
  const Plan large = make(asked, block_table(16));
  const std::int64_t more = bytes_of(large, "of a pass of [evaluate]");
  // At least the stream between blocks.
  EXPECT_GT(more + large.bytes_of(Category::activations),
            2 * asked.evaluate_tokens * asked.architecture.d_model * 2);
  EXPECT_EQ(large.memory_bytes(), trained + more);
}

TEST(Memory, OfOneRankInFp32NeedsNoCopies) {
  const Plan plan = make(request(1, core::DType::f32), block_table(16));
  EXPECT_EQ(bytes_of(plan, "copy to compute with"), -1);
  EXPECT_EQ(plan.bytes_of(Category::gathered), 0);
  EXPECT_EQ(bytes_of(plan, "of open units"), -1);
  EXPECT_EQ(plan.bytes_of(Category::communication), 0);
}

TEST(Memory, KnowsWhatRanksOfANodeShareWhereThereAreSeveralNodes) {
  PlanInput four = request(4);
  four.ranks = {.world_size = 4, .ranks_per_node = 2, .num_nodes = 2};
  const std::int64_t two_mib = std::int64_t{2} << 20;
  EXPECT_EQ(bytes_of(make(four, block_table(16)), "shared with"), two_mib);
  four.parallel.sharding = sharding_named("HYBRID_SHARD");
  EXPECT_EQ(bytes_of(make(four, block_table(16)), "shared with"), -1) << "one rank on each node";
  four.parallel.sharding = sharding_named("NO_SHARD");
  EXPECT_EQ(bytes_of(make(four, block_table(16)), "shared with"), two_mib);
  four.ranks = {.world_size = 4, .ranks_per_node = 4, .num_nodes = 1};
  EXPECT_EQ(bytes_of(make(four, block_table(16)), "shared with"), -1) << "one node";
}

TEST(Memory, OfReplicasSumsGradientsWithoutOpenBuffersInFp32) {
  EXPECT_EQ(bytes_of(make(with(4, "NO_SHARD", core::DType::f32), block_table(16)), "of open"), -1);
  EXPECT_EQ(bytes_of(make(with(4, "NO_SHARD"), block_table(16)), "of open"),
            2 * pooled_size(block));
}

TEST(Memory, OfGatheredUnitsFollowsTheStrategy) {
  const auto gathered = [](const PlanInput& request) {
    return make(request, block_table(16)).bytes_of(Category::gathered);
  };
  // Two of 16 units rotate: the one that computes, and the next one or the last block, which waits
  // for its backward pass.
  PlanInput calm = request(2);
  calm.parallel.overlap = false;
  EXPECT_EQ(gathered(calm), 2 * 2 * pooled_size(block));
  EXPECT_EQ(gathered(request(2)), 2 * 2 * pooled_size(block));
  EXPECT_EQ(gathered(with(2, "SHARD_GRAD_OP")), 16 * 2 * pooled_size(block));
  EXPECT_EQ(gathered(with(2, "NO_SHARD")), 0);
  PlanInput whole = request(2);
  whole.parallel.bucket = Bucket::whole;
  EXPECT_EQ(gathered(whole), 2 * pooled_size(16 * block));
}

TEST(Memory, OfATiedHeadHasTheEmbeddingOpenBesides) {
  model::ParameterTable table = block_table(16);
  table.rows[0].shape = {1001, 4004};  // the embedding is large
  PlanInput tied = request(2);
  tied.architecture.tied_embeddings = true;
  const std::int64_t embedding = 1001 * 4004 + 1001;
  const Plan plan = make(tied, table);
  // The head, the last block, and the embedding again.
  EXPECT_GE(bytes_of(plan, "whole units"), 2 * (2 * block + embedding));
  EXPECT_GE(bytes_of(plan, "of open units"), 2 * block);
}

TEST(Memory, OfPanelsInFp32GrowsWithTheThreadsAndIsNeededOnCpusAlone) {
  const auto panels = [](core::DType dtype, bool widens, std::int64_t threads,
                         bool on_gpu = false) {
    PlanInput changed = request(1, dtype);
    changed.numbers.widens = widens;
    changed.threads = threads;
    changed.on_gpu = on_gpu;
    return bytes_of(make(changed, block_table(16)), "panels in fp32");
  };
  // Sequences of 32 tokens fill one tile of 48, heads of 16 one panel: 7 numbers in fp32 each.
  constexpr std::int64_t of_attention = 4 * 7 * 48 * 16;
  EXPECT_EQ(panels(core::DType::f32, false, 1), of_attention);
  EXPECT_EQ(panels(core::DType::bf16, true, 1), of_attention + model::product_scratch_bytes());
  EXPECT_EQ(panels(core::DType::bf16, true, 3), 3 * panels(core::DType::bf16, true, 1));
  EXPECT_EQ(panels(core::DType::bf16, false, 1), -1);
  EXPECT_EQ(panels(core::DType::bf16, true, 1, true), -1);
}

TEST(Memory, OfSmallerBucketsIsNeverMore) {
  const auto bytes = [](const char* bucket) {
    PlanInput changed = request(2);
    changed.parallel.bucket = bucket_named(bucket);
    return make(changed, block_table(16)).memory_bytes();
  };
  EXPECT_LE(bytes("LAYER"), bytes("BLOCK"));
  EXPECT_LT(bytes("BLOCK"), bytes("NONE"));
}

TEST(Memory, OfActivationsGrowsWithTheTokensOfAPass) {
  PlanInput larger = request(2);
  larger.micro_batch *= 3;
  EXPECT_EQ(bytes_of(make(larger, block_table(16)), "kept for backward"),
            3 * bytes_of(make(request(2), block_table(16)), "kept for backward"));
}

TEST(Memory, OfKeptActivationsIsCountedByHand) {
  // A token and block: input, two norms, sum after attention (4 x 64), q k v (128), attention's
  // output (64), gate, up and product (3 x 96) in bf16; two norms and four heads in fp32.
  const auto kept = [](ActivationCheckpointing mode) {
    PlanInput changed = request(2);
    changed.activation_checkpointing = mode;
    return bytes_of(make(changed, block_table(16)), "kept for backward");
  };
  constexpr std::int64_t tokens_and_blocks = 2 * 32 * 16;
  EXPECT_EQ(kept(ActivationCheckpointing::none),
            tokens_and_blocks * (2 * (4 * 64 + 128 + 64 + 3 * 96) + 4 * 6));
  EXPECT_EQ(kept(ActivationCheckpointing::selective),
            tokens_and_blocks * (2 * (2 * 64 + 128 + 64 + 2 * 96) + 4 * 6));
  EXPECT_EQ(kept(ActivationCheckpointing::full), tokens_and_blocks * 2 * 64);
}

TEST(Memory, OfActivationsShrinksWithEachModeOfCheckpointing) {
  PlanInput changed = request(2);
  const auto bytes = [&](ActivationCheckpointing mode) {
    changed.activation_checkpointing = mode;
    return make(changed, block_table(16)).bytes_of(Category::activations);
  };
  const std::int64_t none = bytes(ActivationCheckpointing::none);
  const std::int64_t selective = bytes(ActivationCheckpointing::selective);
  EXPECT_LT(selective, none);
  EXPECT_LT(bytes(ActivationCheckpointing::full), selective);
}

TEST(Memory, OfLogitsStopsGrowingAtAChunk) {
  const auto in_flight = [](std::int64_t tokens, std::int64_t vocabulary) {
    PlanInput changed = request(2);
    changed.micro_batch = 1;
    changed.max_seq_length = tokens;
    changed.architecture.vocab_size = vocabulary;
    return bytes_of(make(changed, block_table(16)), "in flight");
  };
  constexpr std::int64_t many = 1'000'000;
  EXPECT_EQ(in_flight(512, 2 * many) - in_flight(512, many), 2 * 512 * many);
  EXPECT_EQ(in_flight(4096, 2 * many) - in_flight(4096, many), 2 * 1024 * many);
}

TEST(Memory, OfAGpusHostHoldsWhatACheckpointCopies) {
  PlanInput request = tests::request(1);
  request.on_gpu = true;
  const Plan plan = make(request, block_table(3));
  std::int64_t copied = 0;
  for (const UnitLayout& unit : plan.shards.units())
    copied += 3 * static_cast<std::int64_t>(
                      std::bit_ceil(static_cast<std::uint64_t>(4 * unit.shard_size)));
  const auto item =
      std::find_if(plan.memory.begin(), plan.memory.end(),
                   [](const MemoryItem& found) { return found.name == "copies for a checkpoint"; });
  ASSERT_NE(item, plan.memory.end());
  EXPECT_EQ(item->bytes, copied);
  EXPECT_EQ(item->place, Place::host);
}

TEST(Memory, OfAGpuCountsWhatNoTensorTakes) {
  const auto plan_of = [](std::int64_t ranks, const char* sharding) {
    PlanInput changed = with(ranks, sharding);
    changed.on_gpu = true;
    return make(changed, block_table(16));
  };
  const Plan alone = plan_of(1, "NO_SHARD");
  EXPECT_EQ(bytes_of(alone, "CUDA's context"), gpu_context_bytes);
  EXPECT_EQ(bytes_of(alone, "NCCL's communicators"), -1);
  EXPECT_NEAR(static_cast<double>(bytes_of(alone, "gaps between tensors")),
              0.04 * static_cast<double>(alone.tensor_bytes()), 1);
  EXPECT_EQ(alone.memory_bytes() - alone.tensor_bytes(),
            gpu_context_bytes + bytes_of(alone, "libraries' kernels") +
                bytes_of(alone, "gaps between tensors"));
  const std::int64_t one_group = bytes_of(plan_of(2, "FULL_SHARD"), "NCCL's communicators");
  EXPECT_GT(one_group, 0);
  EXPECT_EQ(bytes_of(plan_of(4, "FULL_SHARD"), "NCCL's communicators"), one_group);
  EXPECT_EQ(bytes_of(plan_of(4, "HYBRID_SHARD"), "NCCL's communicators"), 2 * one_group)
      << "within a node, and between those of equal shards";
  EXPECT_EQ(communicator_bytes(plan_of(2, "FULL_SHARD").mesh), one_group);
}

TEST(Memory, OfAnOffloadedOptimizerIsTheHosts) {
  PlanInput offloaded = request(2);
  offloaded.on_gpu = offloaded.offloads_optimizer = true;
  const Plan plan = make(offloaded, block_table(16));
  const std::int64_t shard = 16 * block / 2;
  std::int64_t on_host = 0;
  for (const MemoryItem& item : plan.memory) {
    const bool is_state = item.category == Category::weights || item.category == Category::states;
    if (is_state && item.place == Place::host) on_host += item.bytes;
  }
  EXPECT_EQ(on_host, (4 + 8) * shard);
  EXPECT_EQ(plan.bytes_of(Category::weights), 2 * shard);
  EXPECT_EQ(plan.bytes_of(Category::states), 0);
  offloaded.on_gpu = false;
  EXPECT_EQ(make(offloaded, block_table(16)).host_bytes(), 0) << "a CPU rank has one memory";
}

TEST(Memory, OfAnOffloadedOptimizerHasTwoUnitsOnTheirWay) {
  PlanInput offloaded = request(2);
  offloaded.on_gpu = offloaded.offloads_optimizer = true;
  const auto bytes_named = [&](const std::string& name, int num_blocks) {
    const Plan plan = make(offloaded, block_table(num_blocks));
    for (const MemoryItem& item : plan.memory)
      if (item.name == name && item.place == Place::host) return item.bytes;
    return std::int64_t{0};
  };
  const std::string gradients = "sums of units, on their way from the device";
  const std::string weights = "new weights of units, on their way to the device";
  EXPECT_EQ(bytes_named(gradients, 16), 2 * pinned_bytes(4 * block / 2));
  EXPECT_EQ(bytes_named(gradients, 1), pinned_bytes(4 * block / 2));
  EXPECT_EQ(bytes_named(weights, 16), 2 * pinned_bytes(2 * block / 2));
}

}  // namespace
}  // namespace finetune::plan::memory_test
