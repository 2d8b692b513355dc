// SPDX-License-Identifier: Apache-2.0
#include "train/run/advice.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "registry.hpp"

namespace finetune::train::advice_test {
namespace {

/// A pretrained model of `parameters` weights.
Input input(double lr, const std::string& adapter, std::int64_t parameters = 1'000'000'000) {
  Input input;
  input.optimizer.kind = &modules::registry().optimizers.front();
  input.optimizer.lr = lr;
  input.adapter.name = adapter;
  input.parameters.units = {"all"};
  input.parameters.rows.push_back({.name = "matrix", .shape = {parameters}, .unit = 0});
  return input;
}

TEST(LearningRateAdvice, IsForAdaptersWithARateForAllWeightsAndTheOtherWayRound) {
  EXPECT_EQ(advice_on_lr(input(2e-5, "lora")).size(), 1U);
  EXPECT_EQ(advice_on_lr(input(2e-5, "qlora")).size(), 1U);
  EXPECT_TRUE(advice_on_lr(input(2e-4, "lora")).empty());
  EXPECT_EQ(advice_on_lr(input(2e-4, "none")).size(), 1U);
  EXPECT_TRUE(advice_on_lr(input(2e-5, "none")).empty());
}

TEST(LearningRateAdvice, NamesTheRemedy) {
  EXPECT_EQ(advice_on_lr(input(2e-5, "lora")).at(0),
            "optimizer.lr = 2e-05: is a learning rate for training all weights (adapter.name = "
            "\"lora\" trains few new ones, which move too little with it). Adapters usually take "
            "1e-4 to 4e-4.");
}

TEST(LearningRateAdvice, FollowsTheOptimizer) {
  Input by_lion = input(2e-5, "lora");
  by_lion.optimizer.kind = optim::find_kind(modules::registry().optimizers, "lion");
  EXPECT_TRUE(advice_on_lr(by_lion).empty());
  by_lion.optimizer.lr = 5e-6;
  EXPECT_NE(advice_on_lr(by_lion).at(0).find("Adapters usually take 2e-5 to 8e-5."),
            std::string::npos);
}

TEST(LearningRateAdvice, FollowsTheAdapter) {
  Input with_factors = input(2e-4, "ia3");
  with_factors.adapter.kind = model::find_adapter(modules::registry().adapters, "ia3");
  EXPECT_NE(advice_on_lr(with_factors).at(0).find("Adapters usually take 1e-3 to 4e-3."),
            std::string::npos);
  with_factors.optimizer.lr = 3e-3;
  EXPECT_TRUE(advice_on_lr(with_factors).empty());
}

TEST(LearningRateAdvice, IsNotForSmallModelsRandomOnesAndNoRate) {
  EXPECT_TRUE(advice_on_lr(input(1e-3, "none", 1'000'000)).empty());
  EXPECT_TRUE(advice_on_lr(input(0, "lora")).empty());
  Input random = input(1e-3, "none");
  random.model.init = InitialWeights::random;
  EXPECT_TRUE(advice_on_lr(random).empty());
}

TEST(CutSamplesAdvice, ComesAboveOnePercentAndNamesALengthThatCutsFewer) {
  data::DataReport report;
  report.num_read = 1000;
  report.longest = 3000;
  report.lengths[8] = 900;  // 256 to 511 tokens
  report.lengths[9] = 95;   // 512 to 1023
  report.lengths[11] = 5;
  report.of(data::SampleKind::truncated).number = 10;
  EXPECT_FALSE(advice_on_cuts(report, "training data", 512).has_value());
  report.of(data::SampleKind::truncated).number = 100;
  const auto advice = advice_on_cuts(report, "training data", 512);
  ASSERT_TRUE(advice.has_value());
  EXPECT_TRUE(
      advice->starts_with("training data: 100 of 1,000 samples (10.0 %) are cut at "
                          "data.max_seq_length = 512"))
      << *advice;
  EXPECT_NE(advice->find("With 1024 fewer than 1 % would be"), std::string::npos) << *advice;
}

TEST(SaveAdvice, IsForRunsOfHoursThatSaveAtTheirEndAlone) {
  checkpoint::CheckpointSettings settings;
  EXPECT_FALSE(advice_on_saves(settings, 10, 10'000, 4'000).has_value())
      << "the default saves by minutes";
  settings.save_minutes = 0;
  EXPECT_TRUE(advice_on_saves(settings, 10, 10'000, 4'000).has_value());
  EXPECT_FALSE(advice_on_saves(settings, 0.1, 10'000, 4'000).has_value()) << "a quarter of an hour";
  settings.save_steps = 20'000;
  EXPECT_TRUE(advice_on_saves(settings, 10, 10'000, 4'000).has_value()) << "that step never comes";
  settings.save_steps = 500;
  EXPECT_FALSE(advice_on_saves(settings, 10, 10'000, 4'000).has_value());
  settings.save_steps = 0;
  settings.save_epochs = 2;
  EXPECT_FALSE(advice_on_saves(settings, 10, 10'000, 4'000).has_value());
  EXPECT_TRUE(advice_on_saves(settings, 10, 10'000, 5'000).has_value()) << "that is the end";
}

TEST(EpochAdvice, RefusesABatchThatTheDataCannotFill) {
  EXPECT_FALSE(advice_on_epoch(65, 65, "input.toml").has_value());
  try {
    advice_on_epoch(65, 64, "input.toml");
    FAIL() << "nothing thrown";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::deck);
  }
  EXPECT_EQ(advice_on_epoch(8, 5, "input.toml"),
            "train.global_batch = 8: exceeds the 5 sequences of an epoch (a step takes none of "
            "them twice). Use 5 or less.");
}

}  // namespace
}  // namespace finetune::train::advice_test
