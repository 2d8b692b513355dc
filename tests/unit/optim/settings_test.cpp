// SPDX-License-Identifier: Apache-2.0
#include "optim/settings.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "registry.hpp"
#include "support/settings.hpp"

namespace finetune::optim::settings_test {
namespace {

OptimizerSettings read(const std::string& text) {
  return tests::read_table<OptimizerSettings>("[optimizer]\n" + text, "optimizer",
                                              modules::registry().optimizers);
}

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::deck);
    return error.what();
  }
  return "nothing thrown";
}

TEST(OptimizerSettings, ReadEveryKey) {
  const OptimizerSettings s = read(
      "lr = 1e-3\nschedule = \"linear\"\nmin_lr_ratio = 0.1\nwarmup_steps = 3\nbeta1 = 0.8\n"
      "beta2 = 0.9\neps = 1e-6\nweight_decay = 0.01\nmax_grad_norm = 2\nrounding = \"nearest\"\n");
  EXPECT_EQ(s.lr, 1e-3);
  EXPECT_EQ(s.schedule, LrSchedule::linear);
  EXPECT_EQ(s.min_lr_ratio, 0.1);
  EXPECT_EQ(s.warmup_steps, 3);
  EXPECT_EQ(s.numbers.at("beta1"), 0.8);
  EXPECT_EQ(s.numbers.at("beta2"), 0.9);
  EXPECT_EQ(s.numbers.at("eps"), 1e-6);
  EXPECT_EQ(s.weight_decay, 0.01);
  EXPECT_EQ(s.max_grad_norm, 2);
  EXPECT_FALSE(s.rounds_stochastically());
  EXPECT_TRUE(read("").rounds_stochastically());
  EXPECT_EQ(read("warmup_ratio = 0.1").warmup_ratio, 0.1);
}

TEST(OptimizerSettings, HaveTheDefaultsOfTheChosenOptimizer) {
  EXPECT_EQ(read("").numbers.at("beta2"), 0.95);
  const OptimizerSettings lion = read("name = \"lion\"\nbeta1 = 0.8");
  EXPECT_EQ(lion.kind->name(), "lion");
  EXPECT_EQ(lion.numbers.at("beta1"), 0.8);
  EXPECT_EQ(lion.numbers.at("beta2"), 0.99);
  EXPECT_FALSE(lion.numbers.contains("eps"));
}

TEST(OptimizerSettings, RefuseKeysThatTheChosenOptimizerDoesNotRead) {
  EXPECT_NE(refusal("name = \"lion\"\neps = 1e-6").find("does not read it"), std::string::npos);
}

TEST(OptimizerSettings, RefuseKeysThatTheChosenScheduleDoesNotRead) {
  const OptimizerSettings s =
      read("schedule = \"cosine_with_restarts\"\nnum_cycles = 4\nwarmup_steps = 3\n");
  EXPECT_EQ(s.schedule, LrSchedule::cosine_with_restarts);
  EXPECT_EQ(s.num_cycles, 4);
  EXPECT_EQ(read("schedule = \"polynomial\"\npower = 0.5").power, 0.5);
  EXPECT_EQ(read("schedule = \"inverse_sqrt\"\ntimescale_steps = 9").timescale_steps, 9);
  for (const char* text : {"num_cycles = 2", "power = 2.0", "timescale_steps = 5",
                           "schedule = \"polynomial\"\nnum_cycles = 2"})
    EXPECT_NE(refusal(text).find("optimizer.schedule does not read it"), std::string::npos) << text;
  for (const char* text : {"schedule = \"cosine_with_restarts\"\nnum_cycles = 0",
                           "schedule = \"polynomial\"\npower = 0"})
    EXPECT_NE(refusal(text).find("is out of range"), std::string::npos) << text;
}

TEST(OptimizerSettings, RefuseTwoKindsOfWarmUp) {
  EXPECT_NE(refusal("warmup_steps = 3\nwarmup_ratio = 0.1")
                .find("both warmup_steps and warmup_ratio are set"),
            std::string::npos);
}

TEST(OptimizerSettings, RefuseNumbersWithoutMeaning) {
  for (const char* text : {"lr = -1", "min_lr_ratio = 1.5", "warmup_steps = -1", "beta1 = 1.1",
                           "eps = -1", "schedule = \"exponential\"", "max_grad_norm = -1"}) {
    EXPECT_NE(refusal(text), "nothing thrown") << text;
  }
}

/// The bias corrections 1 - beta^step would be zero, and every weight NaN.
TEST(OptimizerSettings, RefuseMeansThatForgetNothing) {
  EXPECT_NE(refusal("beta1 = 1.0"), "nothing thrown");
  EXPECT_NE(refusal("beta2 = 1.0"), "nothing thrown");
  EXPECT_NE(refusal("eps = 0.0"), "nothing thrown") << "0 / 0 where no gradient ever came";
}

}  // namespace
}  // namespace finetune::optim::settings_test
