// SPDX-License-Identifier: Apache-2.0
// Plans of models with frozen and packed weights and adapters beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "adapters/lora/lora.hpp"
#include "adapters/lora/settings.hpp"
#include "adapters/qlora/qlora.hpp"
#include "model/quantization.hpp"
#include "models/qwen/qwen.hpp"
#include "plan/fits.hpp"
#include "plan/plan.hpp"
#include "support/architecture.hpp"
#include "support/optimizers.hpp"

namespace finetune::plan::adapters_test {
namespace {

/// Qwen2.5-72B as its GPTQ variants have it: d_ff is padded for their group size.
model::Architecture qwen_72b() {
  model::Architecture a =
      tests::architecture_of({80, 8192, 64, 8, 128, 29696, 152064, /*max_positions=*/32768});
  a.qkv_bias = true;
  return a;
}

model::Architecture small() {
  model::Architecture a = tests::architecture_of({6, 512, 8, 2, 64, 1408, 1000, 32768});
  a.qkv_bias = true;
  return a;
}

enum class Base { trained, dense, nf4, gptq, integers };

model::ParameterTable table_of(const model::Architecture& a, Base base,
                               model::AdapterSettings settings = {}) {
  model::ParameterTable table = models::qwen::qwen2().describe(a);
  if (base == Base::gptq) {
    model::Quantization packed;
    packed.packing = {.kind = model::Packing::Kind::gptq, .in_files = true, .group_size = 128};
    model::mark_packed(packed, "config.json", table);
  }
  if (base == Base::integers) {
    model::Quantization packed;
    packed.packing = {.kind = model::Packing::Kind::integers,
                      .in_files = true,
                      .group_size = 128,
                      .bits = 8,
                      .has_zeros = true};
    model::mark_packed(packed, "config.json", table);
  }
  if (base == Base::dense || base == Base::gptq || base == Base::integers)
    model::put_on(adapters::lora::adapter(), settings, "", table);
  if (base == Base::nf4) model::put_on(adapters::qlora::adapter(), settings, "", table);
  return table;
}

PlanInput request(const model::Architecture& a, std::int64_t ranks) {
  PlanInput request = tests::adamw_request();
  request.architecture = a;
  request.parallel.sharding = sharding_named("FULL_SHARD");
  request.ranks = {.world_size = ranks, .ranks_per_node = ranks};
  request.global_batch = ranks;
  request.max_seq_length = 64;
  return request;
}

/// Bytes of the items of a category whose names begin so.
std::int64_t bytes_of(const Plan& plan, const std::string& beginning,
                      Category category = Category::weights) {
  std::int64_t bytes = 0;
  for (const MemoryItem& item : plan.memory)
    if (item.category == category && item.name.starts_with(beginning)) bytes += item.bytes;
  return bytes;
}

TEST(Adapters, HaveFrozenBytesThatFallAsTheRanksGrow) {
  for (const Base base : {Base::dense, Base::nf4, Base::gptq}) {
    const model::ParameterTable table = table_of(small(), base);
    const auto frozen = [&](std::int64_t ranks) {
      const Plan plan = make(request(small(), ranks), table);
      EXPECT_EQ(bytes_of(plan, "frozen"), plan.shards.frozen_shard_bytes());
      return static_cast<double>(plan.shards.frozen_shard_bytes());
    };
    const double whole = frozen(1);
    for (const std::int64_t ranks : {2, 3, 8, 64})
      EXPECT_NEAR(frozen(ranks) * static_cast<double>(ranks) / whole, 1, 0.01) << ranks;
  }
}

TEST(Adapters, ListWhatIsPackedApart) {
  const Plan nf4 = make(request(small(), 2), table_of(small(), Base::nf4));
  EXPECT_GT(bytes_of(nf4, "frozen, NF4"), 0);
  EXPECT_GT(bytes_of(nf4, "frozen, bf16"), 0) << "the embedding";
  const Plan gptq = make(request(small(), 2), table_of(small(), Base::gptq));
  EXPECT_GT(bytes_of(gptq, "frozen, GPTQ 4-bit"), bytes_of(nf4, "frozen, NF4"));
  const Plan dense = make(request(small(), 2), table_of(small(), Base::dense));
  EXPECT_EQ(bytes_of(dense, "frozen, NF4"), 0);
  EXPECT_EQ(bytes_of(dense, "frozen"), bytes_of(dense, "frozen, bf16"));
  EXPECT_EQ(bytes_of(dense, "unpacked matrices", Category::gathered), 0);
  // Gate and up together, in bf16.
  EXPECT_EQ(bytes_of(nf4, "unpacked matrices", Category::gathered), 2 * 2 * 512 * 1408);
}

TEST(Adapters, CountCodesScalesAndZerosOfIntegers) {
  const model::ParameterTable table = table_of(small(), Base::integers);
  std::int64_t bytes = 0;
  for (const model::Parameter& row : table.rows)
    if (!row.packing.is_dense()) bytes += row.count() + row.count() / 128 * (4 + 1);
  const Plan plan = make(request(small(), 1), table);
  // Planes are aligned.
  EXPECT_NEAR(bytes_of(plan, "frozen, 8-bit integers"), bytes, 1e-3 * static_cast<double>(bytes));
}

TEST(Adapters, GatherOfNf4AboutAQuarterOfBf16) {
  const auto block = [](Base base) {
    const Plan plan = make(request(small(), 2), table_of(small(), base));
    for (const UnitLayout& unit : plan.shards.units())
      if (unit.name == "layers.0") return static_cast<double>(unit.padded_count());
    return 0.0;
  };
  // 4 bits, and 8 and 32/256 for each 64 of them: 4.127 of 16.
  EXPECT_NEAR(block(Base::nf4) / block(Base::dense), 4.127 / 16, 0.003);
}

TEST(Adapters, AloneHaveMastersMomentsAndSums) {
  const model::ParameterTable table = table_of(small(), Base::dense);
  PlanInput one = request(small(), 1);
  one.saves_beside_training = true;
  const Plan plan = make(one, table);
  EXPECT_EQ(bytes_of(plan, "master copy"), 4 * table.num_trainable());
  EXPECT_EQ(bytes_of(plan, "copy to compute with"), 2 * table.num_trainable());
  EXPECT_EQ(bytes_of(plan, "AdamW moments", Category::states), 8 * table.num_trainable());
  EXPECT_EQ(bytes_of(plan, "copy to be saved", Category::states), 12 * table.num_trainable());
  EXPECT_EQ(bytes_of(plan, "sums", Category::gradients), 4 * table.num_trainable());
}

TEST(Adapters, MakeBackwardKeepOnlyWhatTheyRead) {
  const auto kept = [](const std::vector<std::string>& targets) {
    model::AdapterSettings settings;
    settings.target_modules = targets;
    return bytes_of(make(request(small(), 1), table_of(small(), Base::dense, settings)),
                    "kept for backward", Category::activations);
  };
  constexpr std::int64_t r = 8;
  constexpr std::int64_t tokens_and_blocks = 64 * 6;
  // Input, sum after attention (2 x 512), q k v (768), attention's output (512), gate and up (2 x
  // 1408) in bf16; two norms and eight heads in fp32.
  constexpr std::int64_t always = 2 * (2 * 512 + 768 + 512 + 2 * 1408) + 4 * 10;
  EXPECT_EQ(kept({"o_proj"}), tokens_and_blocks * (always + 2 * r));
  EXPECT_EQ(kept({"q_proj", "v_proj"}), tokens_and_blocks * (always + 2 * (512 + 2 * r)));
  EXPECT_EQ(kept({"all-linear"}),
            tokens_and_blocks * (always + 2 * (2 * 512 + 1408 + (3 + 1 + 2 + 1) * r)));
}

TEST(Adapters, WithEightBitMomentsHaveTwoBytesAndTwoScalesABlock) {
  PlanInput eight = request(small(), 1);
  eight.optimizer = tests::adamw8bit();
  const model::ParameterTable table = table_of(small(), Base::trained);
  const auto bytes =
      static_cast<double>(bytes_of(make(eight, table), "AdamW moments, 8-bit", Category::states));
  EXPECT_NEAR(bytes / static_cast<double>(table.num_trainable()), 2 + 8.0 / 256, 0.01);
}

TEST(Adapters, OfA72BModelInGptqFitFourGpusOf24GB) {
  model::AdapterSettings settings;
  settings.of<adapters::lora::Settings>().r = 16;
  PlanInput wanted = request(qwen_72b(), 4);
  wanted.max_seq_length = 1024;
  wanted.activation_checkpointing = ActivationCheckpointing::full;
  wanted.on_gpu = true;
  const Plan plan = make(wanted, table_of(qwen_72b(), Base::gptq, settings));
  EXPECT_LT(plan.memory_bytes(), 22'000'000'000) << to_string(plan);
  EXPECT_GT(plan.memory_bytes(), 72'000'000'000 / 2 / 4);
}

TEST(Remedies, WithAnAdapterAreThoseOfItsTable) {
  const model::ParameterTable table = table_of(small(), Base::dense);
  PlanInput wanted = request(small(), 1);
  for (const Remedy& remedy : remedies(wanted, table, 1)) {
    EXPECT_NE(remedy.change, "optimizer.name = \"adamw8bit\"") << "its states are small";
    EXPECT_FALSE(remedy.change.starts_with("adapter")) << remedy.change;
  }
}

TEST(Remedies, NameAnAdapterWhereNothingElseIsEnough) {
  const model::Architecture a = qwen_72b();
  PlanInput wanted = request(a, 4);
  wanted.on_gpu = true;
  wanted.other_tables = {{"adapter.name = \"lora\"", [&] { return table_of(a, Base::dense); }},
                         {"adapter.name = \"qlora\"", [&] { return table_of(a, Base::nf4); }}};
  const auto found = remedies(wanted, table_of(a, Base::trained), 24'000'000'000);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().change, "adapter.name = \"qlora\"");
  EXPECT_LE(found.front().bytes, 24'000'000'000);
}

TEST(Remedies, NestTheMaximaOfNf4) {
  model::AdapterSettings settings;
  settings.double_quant = false;
  const model::Architecture a = qwen_72b();
  PlanInput wanted = request(a, 4);
  wanted.on_gpu = true;
  wanted.activation_checkpointing = ActivationCheckpointing::full;
  const auto found = remedies(wanted, table_of(a, Base::nf4, settings), 1);
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](const Remedy& remedy) {
    return remedy.change == "adapter.double_quant = true";
  }));
}

}  // namespace
}  // namespace finetune::plan::adapters_test
