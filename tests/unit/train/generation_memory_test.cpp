// SPDX-License-Identifier: Apache-2.0
// The memory plan of writing texts against what libtorch's allocator hands out.
#include <gtest/gtest.h>

#include "plan/memory/generation.hpp"
#include "registry.hpp"
#include "support/allocations.hpp"
#include "support/folders.hpp"
#include "support/golden_models.hpp"
#include "support/ranks.hpp"
#include "train/infer/generate.hpp"
#include "train/infer/loaded_model.hpp"
#include "train/input/described_model.hpp"

namespace finetune::train::generation_memory_test {
namespace {

/// Texts that are as long as the plan says, and never end before.
std::vector<TextRequest> texts(const plan::GenerationInput& input) {
  std::vector<TextRequest> all;
  for (std::int64_t i = 0; i < input.batch; ++i) {
    TextRequest text{.id = i, .prompt = {}};
    for (std::int64_t k = 0; k < input.prompt_tokens; ++k)
      text.prompt.push_back(static_cast<std::int32_t>((i + 37 * k) % 500));
    text.sampling.max_tokens = input.new_tokens;
    all.push_back(std::move(text));
  }
  return all;
}

struct Bytes {
  double weights = 0, others = 0;
};

Bytes planned(const plan::GenerationInput& input, const model::ParameterTable& table) {
  Bytes bytes;
  for (const plan::MemoryItem& item : plan::plan_generation(input, table))
    if (item.is_tensor)
      (item.category == plan::Category::weights ? bytes.weights : bytes.others) +=
          static_cast<double>(item.bytes);
  return bytes;
}

Bytes measured(const plan::GenerationInput& input, const std::filesystem::path& folder) {
  Bytes bytes;
  std::unique_ptr<LoadedModel> loaded;
  const std::int64_t tp = input.tp;
  const shard::Groups groups = sharing_groups(tests::world(), tests::world(), tp);
  {
    const tests::Allocations allocations;
    loaded = std::make_unique<LoadedModel>(
        folder, modules::registry(), groups,
        inference_options(input.compute, tests::world(), comm::UseOfGpus::never), WeightUse::read);
    bytes.weights = static_cast<double>(allocations.live_bytes());
  }
  const tests::Allocations allocations;
  const auto requests = texts(input);
  generate_texts(loaded->engine(), requests,
                 {.batch = input.batch, .prompt_tokens = input.tokens_together});
  bytes.others = static_cast<double>(allocations.peak_bytes());
  // The plan is of the rank with the largest parts.
  for (double* each : {&bytes.weights, &bytes.others})
    *each = tests::world().all_reduce(*each, comm::Reduce::max);
  return bytes;
}

/// No less than what is taken, and not much more: padding, tables of positions, ids.
void expect_planned(plan::GenerationInput input,
                    const std::filesystem::path& folder = tests::source_folder() /
                                                          "inputs/quickstart/model") {
  const DescribedModel described = describe_model(tests::world(), folder, modules::registry());
  input.architecture = described.architecture;
  input.world_size = tests::world().size();
  const Bytes plan = planned(input, described.parameters), real = measured(input, folder);
  EXPECT_NEAR(real.weights, plan.weights, 0.05 * plan.weights);
  constexpr double slack_bytes = 256 << 10;
  EXPECT_GT(plan.others + slack_bytes, real.others);
  EXPECT_LT(plan.others, 1.3 * real.others + slack_bytes);
}

TEST(GenerationMemory, IsPlannedForManyTexts) {
  expect_planned({.compute = core::DType::f32,
                  .batch = 12,
                  .prompt_tokens = 40,
                  .new_tokens = 30,
                  .tokens_together = 4096});
}

TEST(GenerationMemory, IsPlannedForLongPrompts) {
  expect_planned({.compute = core::DType::bf16,
                  .batch = 4,
                  .prompt_tokens = 300,
                  .new_tokens = 8,
                  .tokens_together = 600});
}

/// Two of five layers have states, and one keys and values.
TEST(GenerationMemory, IsPlannedForStatesOfTexts) {
  expect_planned({.compute = core::DType::f32,
                  .batch = 200,
                  .prompt_tokens = 12,
                  .new_tokens = 20,
                  .tokens_together = 4096},
                 tests::golden_model("nemotron_h"));
}

TEST(GenerationMemory, IsPlannedForRanksThatShareMatrices) {
  if (tests::world().size() != 2) GTEST_SKIP() << "for two ranks";
  expect_planned({.compute = core::DType::f32,
                  .tp = 2,
                  .batch = 6,
                  .prompt_tokens = 100,
                  .new_tokens = 20,
                  .tokens_together = 4096});
}

TEST(GenerationMemory, CountsRowsOfACacheThatGrows) {
  EXPECT_EQ(plan::cached_rows(100, 64), 164);
  EXPECT_EQ(plan::cached_rows(100, 65), 328);
  EXPECT_EQ(plan::cached_rows(1, 500), 520);
}

}  // namespace
}  // namespace finetune::train::generation_memory_test
