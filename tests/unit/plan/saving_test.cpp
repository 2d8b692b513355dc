// SPDX-License-Identifier: Apache-2.0
#include "plan/time/saving.hpp"

#include <gtest/gtest.h>

#include "unit/plan/requests.hpp"

namespace finetune::plan::saving_test {
namespace {

TEST(BestInterval, OfLlama3sThreeHoursIs147SecondsForASecond) {
  EXPECT_NEAR(best_interval_s(1, 3 * 3600), 147, 0.1);
  EXPECT_NEAR(best_interval_s(60, 3 * 3600) / 60, 19, 0.1);
}

TEST(BestInterval, LosesLeast) {
  const double best = best_interval_s(10, 1e5);
  const double least = expected_loss(best, 10, 30, 1e5);
  EXPECT_GT(expected_loss(0.8 * best, 10, 30, 1e5), least);
  EXPECT_GT(expected_loss(1.25 * best, 10, 30, 1e5), least);
  EXPECT_EQ(expected_loss(1e9, 1, 0, 1), 1) << "more than all cannot be lost";
}

class Saving : public ::testing::Test {
 protected:
  Saving() : request_(tests::request(4)), table_(tests::block_table(4, 1000)) {
    request_.on_gpu = true;
    machine_ = tests::round_machine();
    machine_.write_gb_per_s = 1;
    machine_.read_gb_per_s = 2;
    machine_.host_gb_per_s = 10;
    machine_.node_mtbf_hours = 100;
  }
  SavingPlan plan(const SavingRules& rules = {}) const {
    return plan_saving(make(request_, table_), request_, machine_, rules);
  }

  PlanInput request_;
  model::ParameterTable table_;
  Machine machine_;
};

constexpr double parameters = 4 * 1'001'000;

TEST_F(Saving, ACheckpointHasWeightsAndMomentsOfWhatIsTrained) {
  EXPECT_EQ(plan().bytes, 12 * parameters);
  request_.numbers.master = request_.numbers.moments = core::DType::bf16;
  EXPECT_EQ(plan().bytes, 6 * parameters);
  request_.optimizer = tests::adamw8bit();
  EXPECT_NEAR(static_cast<double>(plan().bytes), (2 + 2 + 2 * 4.0 / 256) * parameters, 16);
  table_.rows[0].trainable = false;
  EXPECT_NEAR(static_cast<double>(plan().bytes), 4.03125 * (parameters - 1e6), 16);
}

TEST_F(Saving, FactorsAreOfRowsAndColumnsAndStoredOnce) {
  using Of = OptimizerState::Of;
  const auto factors = [](const char* kind, Of of) {
    return OptimizerState{.kind = kind, .dtype = core::DType::f32, .of = of};
  };
  request_.optimizer.states = {factors("row", Of::rows), factors("col", Of::columns),
                               factors("vector", Of::vectors)};
  table_ = {.rows = {{.name = "matrix", .shape = {30, 20}, .unit = 0, .stage = 1},
                     {.name = "experts", .shape = {4, 3, 5}, .unit = 0, .stage = 1},
                     {.name = "norm", .shape = {7}, .unit = 0, .stage = 1}},
            .units = {"block"}};
  const std::int64_t num_factors = 30 + 20 + 4 * (3 + 5) + 7;
  EXPECT_EQ(plan().bytes, 4 * (600 + 60 + 7) + 4 * num_factors);
  const ShardMap alone(table_, 1), shared(table_, 4);
  for (const ShardMap* map : {&alone, &shared}) {
    EXPECT_EQ(request_.optimizer.factor_bytes(table_, map->unit(0), {}), 4 * num_factors)
        << "each rank has all of them";
    EXPECT_EQ(request_.optimizer.state_bytes(map->unit(0).shard_size, {}), 0);
  }
  EXPECT_EQ(*request_.optimizer.states[1].factor_shape(table_.rows[1]),
            (std::vector<std::int64_t>{4, 5}));
}

TEST_F(Saving, AllNodesWriteAtOnceUpToWhatTheFileSystemTakes) {
  const double bytes = 12 * parameters;
  EXPECT_NEAR(plan({.reads_back = false}).write_s, bytes / 2e9, 1e-9) << "two nodes";
  EXPECT_NEAR(plan().write_s, bytes / 2e9 + bytes / 4e9, 1e-9);
  machine_.all_write_gb_per_s = 0.5;
  EXPECT_NEAR(plan({.reads_back = false}).write_s, bytes / 0.5e9, 1e-9);
}

TEST_F(Saving, TrainingWaitsForTheCopyOrForAllOfIt) {
  EXPECT_NEAR(plan().blocked_s, 2 * 3 * parameters / 10e9, 1e-9) << "a quarter a rank";
  const SavingPlan waits = plan({.beside_training = false});
  EXPECT_EQ(waits.blocked_s, waits.write_s);
}

TEST_F(Saving, TheIntervalIsNoShorterThanASave) {
  EXPECT_NEAR(plan().mtbf_s, 50 * 3600, 1e-6) << "two nodes fail twice as often";
  EXPECT_NEAR(plan().best_interval_s, best_interval_s(plan().blocked_s, 50 * 3600), 1e-9);
  machine_.write_gb_per_s = 1e-5;
  EXPECT_EQ(plan().best_interval_s, plan().write_s);
  EXPECT_EQ(plan({.step_s = 1e6}).best_interval_s, 1e6) << "nor than a step";
}

TEST_F(Saving, WarnsOfRareSavesOnlyWhereTheyCost) {
  EXPECT_FALSE(plan({.interval_s = 4 * plan().best_interval_s}).is_too_rare)
      << "an hour is little of fifty";
  EXPECT_TRUE(plan({.interval_s = 10 * 3600}).is_too_rare);
  EXPECT_NEAR(plan({.interval_s = 10 * 3600}).loss, 0.1, 1e-3) << "five hours of fifty";
}

TEST_F(Saving, NothingIsSaidOfWhatTheMachineDoesNotTell) {
  machine_.node_mtbf_hours = 0;
  EXPECT_EQ(plan().best_interval_s, 0);
  machine_.write_gb_per_s = 0;
  EXPECT_EQ(plan().write_s, 0);
}

}  // namespace
}  // namespace finetune::plan::saving_test
