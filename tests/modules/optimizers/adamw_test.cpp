// SPDX-License-Identifier: Apache-2.0
#include "optimizers/adamw/adamw.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/dtype.hpp"
#include "modules/optimizers/steps.hpp"
#include "optim/clip.hpp"
#include "optim/trained_rows.hpp"
#include "plan/layout/bucket.hpp"
#include "support/ranks.hpp"

namespace finetune::optimizers::adamw_test {
namespace {

using adamw::AdamW;
using optim::OptimizerSettings;
using tests::element_of;
using tests::OddShards;

constexpr std::int64_t num_steps = 3;
constexpr double lr = 0.01;
constexpr double clip = 0.5;

OptimizerSettings settings() {
  OptimizerSettings settings = tests::decaying_by(0.3);
  settings.numbers = {{"beta1", 0.8}, {"beta2", 0.9}, {"eps", 1e-4}};
  return settings;
}

void train(OddShards& odd) {
  AdamW optimizer(settings(), odd.table, odd.shards);
  tests::take_steps(odd, optimizer, num_steps, lr, clip, tests::wave);
}

/// The published algorithm in double, for one element.
double plain(int row, std::int64_t i, bool decayed, double rate = lr) {
  const OptimizerSettings s = settings();
  const adamw::Hyperparameters by(s);
  double weight = element_of(row, i), m = 0, v = 0;
  for (std::int64_t step = 1; step <= num_steps; ++step) {
    const double g = clip * tests::wave(row, i, step - 1);
    if (decayed) weight -= rate * s.weight_decay * weight;
    m = by.beta1 * m + (1 - by.beta1) * g;
    v = by.beta2 * v + (1 - by.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(by.beta1, step));
    const double v_hat = v / (1 - std::pow(by.beta2, step));
    weight -= rate * m_hat / (std::sqrt(v_hat) + by.epsilon);
  }
  return weight;
}

TEST(AdamW, IsThePublishedAlgorithmOnEveryRow) {
  OddShards odd(tests::world(), at::kFloat);
  train(odd);
  odd.for_each([&](int row, std::int64_t i, float value) {
    const bool decayed = odd.table.row(row).decayed;
    EXPECT_NEAR(value, plain(row, i, decayed), 1e-6) << "row " << row << ", element " << i;
  });
}

TEST(AdamW, HasALearningRatePerRow) {
  model::ParameterTable faster = tests::odd_table();
  faster.rows[1].lr_ratio = 16;
  OddShards odd(tests::world(), at::kFloat, faster), usual(tests::world(), at::kFloat);
  train(odd);
  train(usual);
  const tests::Elements expected = usual.elements();
  odd.for_each([&](int row, std::int64_t i, float value) {
    if (row == 1) {
      EXPECT_NEAR(value, plain(row, i, true, 16 * lr), 2e-6) << "element " << i;
    } else {
      EXPECT_EQ(value, expected.at({row, i})) << "row " << row << ", element " << i;
    }
  });
}

TEST(AdamW, LeavesRowsThatAreNotTrained) {
  model::ParameterTable some = tests::odd_table();
  some.rows[4].trained_rows = {2, 3};
  const auto is_trained = [](int row, std::int64_t i) { return row != 4 || (i >= 2 && i < 5); };
  OddShards odd(tests::world(), at::kFloat, some), usual(tests::world(), at::kFloat);
  odd.for_each_gradient([](int, std::int64_t, float& value) { value = 1; });
  optim::forget_other_rows(odd.shards);
  odd.for_each_gradient([&](int row, std::int64_t i, float& value) {
    EXPECT_EQ(value, is_trained(row, i) ? 1.0f : 0.0f) << "row " << row << ", element " << i;
  });
  // 9 + 3 + 3 + 5 + 1 elements and 3 of the 7.
  EXPECT_NEAR(optim::gradient_norm(odd.shards), std::sqrt(24.0), 1e-6);
  train(odd);
  train(usual);
  const tests::Elements expected = usual.elements();
  odd.for_each([&](int row, std::int64_t i, float value) {
    EXPECT_EQ(value, is_trained(row, i) ? expected.at({row, i}) : element_of(row, i))
        << "row " << row << ", element " << i;
  });
}

TEST(AdamW, GivesTheSameBitsOnAnyNumberOfRanks) {
  OddShards alone(comm::Communicator(), at::kFloat), odd(tests::world(), at::kFloat);
  train(alone);
  train(odd);
  tests::expect_elements_of(alone.elements(), odd.elements());
}

TEST(AdamW, PublishesRoundedWeightsAndKeepsTheExactOnes) {
  OddShards exact(tests::world(), at::kFloat), rounded(tests::world(), at::kBFloat16);
  train(exact);
  train(rounded);
  tests::expect_published_rounded(rounded, exact);
}

TEST(AdamW, KeepsMomentsInBf16) {
  OddShards odd(tests::world(), at::kFloat);
  OptimizerSettings nearest = settings();
  nearest.rounding = optim::Rounding::nearest;
  AdamW optimizer(nearest, odd.table, odd.shards, at::kBFloat16);
  AdamW wide(settings(), odd.table, odd.shards);
  odd.for_each_gradient(
      [](int row, std::int64_t i, float& value) { value = tests::wave(row, i, 0); });
  optimizer.step(odd.shards, 0, lr, clip);
  wide.step(odd.shards, 0, lr, clip);
  for (int unit = 0; unit < odd.shards.num_units(); ++unit) {
    EXPECT_TRUE(at::equal(optimizer.exp_avg(unit), wide.exp_avg(unit).to(at::kBFloat16)));
    EXPECT_TRUE(at::equal(optimizer.exp_avg_sq(unit), wide.exp_avg_sq(unit).to(at::kBFloat16)));
  }
}

TEST(AdamW, LeavesPaddingAtZero) {
  OddShards odd(tests::world(), at::kFloat);
  train(odd);
  for (const int unit : odd.shards.trained_units())
    tests::expect_zero_padding(odd, unit, odd.shards.master(unit));
}

TEST(AdamW, DoesNotTouchFrozenRows) {
  model::ParameterTable table = tests::odd_table();
  table.rows[1].trainable = false;
  OddShards odd(tests::world(), at::kFloat, plan::regroup(table, plan::Bucket::block));
  const int frozen = odd.shards.unit_of(1);
  const at::Tensor bytes = odd.shards.published(frozen).fill_(3).clone();
  train(odd);
  EXPECT_TRUE(at::equal(odd.shards.published(frozen), bytes)) << "not even weight decay";
  EXPECT_FALSE(AdamW(settings(), odd.table, odd.shards).exp_avg(frozen).defined());
  odd.for_each([&](int row, std::int64_t i, float value) {
    EXPECT_NE(row, 1);
    EXPECT_NEAR(value, plain(row, i, table.row(row).decayed), 1e-6);
  });
}

}  // namespace
}  // namespace finetune::optimizers::adamw_test
