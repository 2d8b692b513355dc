// SPDX-License-Identifier: Apache-2.0
// Figures that everybody knows, by the arithmetic of the plan.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/memory/memory.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::known_figures_test {
namespace {

using tests::ranks_on_nodes;

/// Seven units of 10^9 parameters.
model::ParameterTable seven_billion() {
  model::ParameterTable table;
  for (int i = 0; i < 7; ++i) {
    table.units.push_back("layers." + std::to_string(i));
    table.rows.push_back({.name = "matrix", .shape = {1'000'000, 1'000}, .unit = i, .stage = i});
  }
  return table;
}

const model::Architecture llama_2_7b =
    tests::architecture_of({32, 4096, 32, 32, 128, 11008, 32000});

/// As the family describes it: rows of a block are one matrix here.
model::ParameterTable llama_2_7b_table() {
  const model::Architecture a = llama_2_7b;
  model::ParameterTable table;
  const auto unit = [&](const std::string& name, std::int64_t rows) {
    const auto i = static_cast<int>(table.units.size());
    table.rows.push_back({.name = name, .shape = {rows, a.d_model}, .unit = i, .stage = i});
    table.units.push_back(name);
  };
  unit("embedding", a.vocab_size);
  for (int i = 0; i < a.num_layers; ++i)
    unit("layers." + std::to_string(i), 4 * a.d_model + 3 * a.d_ff + 2);
  unit("head", a.vocab_size + 1);
  return table;
}

PlanInput full_mixed(const std::string& sharding, std::int64_t ranks) {
  PlanInput request = tests::adamw_request();
  request.architecture = llama_2_7b;
  request.parallel.sharding = sharding_named(sharding);
  request.ranks = ranks_on_nodes(ranks, 8);
  request.on_gpu = true;
  request.max_seq_length = 2048;
  return request;
}

/// What AdamW in mixed precision is known to keep of every parameter, 16 bytes: master weight 4,
/// two moments 8, sum of gradients 4. (Others count 2 + 2 for a half-precision weight and gradient,
/// 4 + 8 for the optimizer: the same 16. Here gradients are summed in fp32; the bf16 copy of the
/// weights, another 2, is an item of its own.)
std::int64_t state_bytes(const Plan& plan) {
  std::int64_t bytes = 0;
  for (const MemoryItem& item : plan.memory) {
    for (const char* name : {"master copy", "AdamW moments", "sums"})
      bytes += item.name.starts_with(name) ? item.bytes : 0;
  }
  return bytes;
}

constexpr std::int64_t giga = 1'000'000'000;

TEST(KnownFigures, SevenBillionParametersHave112GBOfStates) {
  const Plan plan = make(full_mixed("FULL_SHARD", 1), seven_billion());
  EXPECT_EQ(state_bytes(plan), 112 * giga);
  EXPECT_EQ(plan.bytes_of(Category::weights), (4 + 2) * 7 * giga) << "master and bf16";
}

TEST(KnownFigures, Over32GpusThatIsThreeAndAHalfGBAGpu) {
  const Plan plan = make(full_mixed("FULL_SHARD", 32), seven_billion());
  EXPECT_EQ(2 * state_bytes(plan), 7 * giga);
}

TEST(KnownFigures, InNodesOfEightItIs14GB) {
  const Plan plan = make(full_mixed("HYBRID_SHARD", 32), seven_billion());
  EXPECT_EQ(plan.mesh.size(groups::dp_replicate), 4);
  EXPECT_EQ(state_bytes(plan), 14 * giga);
}

TEST(KnownFigures, Llama2Has6738415616Parameters) {
  const Plan plan = make(full_mixed("FULL_SHARD", 1), llama_2_7b_table());
  EXPECT_EQ(plan.num_parameters, 6'738'415'616);
  EXPECT_EQ(state_bytes(plan), 16 * 6'738'415'616);
}

TEST(KnownFigures, Llama2FitsEightGpusOf80GB) {
  const Plan plan = make(full_mixed("FULL_SHARD", 8), llama_2_7b_table());
  EXPECT_NEAR(static_cast<double>(state_bytes(plan)), 16 * 6.738e9 / 8, 1e7);
  EXPECT_LT(plan.memory_bytes(), 80 * giga);
  EXPECT_GT(make(full_mixed("FULL_SHARD", 1), llama_2_7b_table()).memory_bytes(), 80 * giga);
}

}  // namespace
}  // namespace finetune::plan::known_figures_test
