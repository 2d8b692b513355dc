// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/tally.hpp"

#include <gtest/gtest.h>

#include "support/folders.hpp"
#include "train/input/choices.hpp"

namespace finetune::train::tally_test {
namespace {

data::StepData step_data(std::int64_t samples, std::int64_t tokens) {
  data::StepData data;
  data.num_samples = samples;
  data.num_tokens = tokens;
  return data;
}

/// Two ranks of 1e12 operations a second.
constexpr Yardstick yardstick = {.num_ranks = 2, .flops_per_token = 1e9, .peak_flops = 1e12};

TEST(Tally, AddsToWhatEarlierStartsTrained) {
  Tally tally(yardstick, {.samples = 10, .tokens = 1000});
  EXPECT_EQ(tally.add(4, step_data(3, 200), {}, 0.5).total_samples, 13);
  const metrics::StepRecord record = tally.add(5, step_data(2, 100), {}, 0.5);
  EXPECT_EQ(record.step, 5);
  EXPECT_EQ(record.tokens, 100);
  EXPECT_EQ(record.total_samples, 15);
  EXPECT_EQ(record.total_tokens, 1300);
  EXPECT_EQ(tally.totals().samples, 15);
  EXPECT_EQ(tally.totals().tokens, 1300);
}

TEST(Tally, KeepsSumsUnknownThatACheckpointDidNotSay) {
  Tally tally(yardstick, {});
  const metrics::StepRecord record = tally.add(4, step_data(3, 200), {}, 0.5);
  EXPECT_FALSE(record.total_samples);
  EXPECT_FALSE(record.total_tokens);
  EXPECT_FALSE(tally.totals().tokens);
}

TEST(Tally, MeasuresARankByItsPeak) {
  Tally tally(yardstick, {});
  const metrics::StepRecord record = tally.add(1, step_data(3, 400), {}, 0.5);
  EXPECT_DOUBLE_EQ(record.tokens_per_s, 800);
  EXPECT_DOUBLE_EQ(record.tokens_per_s_per_rank.value(), 400);
  EXPECT_DOUBLE_EQ(record.tflops_per_rank.value(), 0.4);
  EXPECT_DOUBLE_EQ(record.mfu.value(), 0.4);
  tally.add(2, step_data(3, 400), {}, 1.5);
  EXPECT_EQ(tally.summary(), "per rank: 200 tokens/s, 0.2 TFLOP/s of the model (20.0 % MFU)");
}

TEST(Tally, NamesLayers) {
  Tally tally({.num_ranks = 1, .num_stages = 4}, {});
  const metrics::StepRecord record = tally.add(
      1, step_data(1, 1), {.layer_norms = {{0, 1, 2}, {1, 3, 4}, {2, 5, 6}, {3, 7, 8}}}, 0.5);
  std::vector<std::string> names;
  for (const metrics::LayerNorm& norm : record.norms)
    names.push_back(norm.layer);
  EXPECT_EQ(names, (std::vector<std::string>{"embedding", "block 0", "block 1", "head"}));
  ASSERT_EQ(record.norms.size(), 4u);
  EXPECT_EQ(record.norms[2].stage, 2);
  EXPECT_EQ(record.norms[2].weight, 5);
  EXPECT_EQ(record.norms[2].gradient, 6);
}

TEST(Tally, InventsNoPeak) {
  Tally tally({.num_ranks = 1, .flops_per_token = 1e9}, {});
  EXPECT_FALSE(tally.add(1, step_data(3, 400), {}, 0.5).mfu);
  EXPECT_NE(tally.summary().find("(MFU not known: "), std::string::npos) << tally.summary();
}

TEST(Peak, IsThatOfTheMachineThatTheDeckNames) {
  Input input;
  EXPECT_EQ(peak_flops(input, true), 0);
  input.parallel.machine = tests::source_folder() / "inputs/machines/h100-8.toml";
  EXPECT_EQ(peak_flops(input, true), 989e12);
  EXPECT_EQ(peak_flops(input, false), 0);  // ranks on CPUs are no H100
  input.parallel.machine = "./missing.toml";
  testing::internal::CaptureStderr();
  EXPECT_EQ(peak_flops(input, true), 0);
  EXPECT_TRUE(testing::internal::GetCapturedStderr().starts_with("warning: MFU is not known: "));
}

}  // namespace
}  // namespace finetune::train::tally_test
