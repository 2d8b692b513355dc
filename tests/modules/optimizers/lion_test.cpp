// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>

#include "modules/optimizers/steps.hpp"
#include "optimizers/lion/kind.hpp"
#include "support/ranks.hpp"

namespace finetune::optimizers::lion_test {
namespace {

using optim::OptimizerSettings;
using optim::OptimizerSetup;
using tests::element_of;
using tests::OddShards;

constexpr std::int64_t num_steps = 4;
constexpr double lr = 0.01, clip = 0.5, decay = 0.3;

OptimizerSettings settings() {
  OptimizerSettings settings = tests::decaying_by(decay);
  settings.numbers["beta1"] = 0.6;
  return settings;
}

std::unique_ptr<optim::Optimizer> train(OddShards& odd, const OptimizerSetup& setup = {}) {
  auto optimizer = lion::kind().make(settings(), odd.table, odd.shards, setup);
  tests::take_steps(odd, *optimizer, num_steps, lr, clip, tests::wave);
  return optimizer;
}

/// Program 1 of the paper in double, for one element; beta2 is lion's own default.
double plain(int row, std::int64_t i, bool decayed, double rate = lr) {
  double weight = element_of(row, i), m = 0;
  for (std::int64_t step = 0; step < num_steps; ++step) {
    const double g = clip * tests::wave(row, i, step);
    const double c = 0.6 * m + 0.4 * g;
    m = 0.99 * m + 0.01 * g;
    const int sign = (c > 0) - (c < 0);
    weight -= rate * (sign + (decayed ? decay * weight : 0));
  }
  return weight;
}

TEST(Lion, IsThePublishedAlgorithmOnEveryRow) {
  for (const auto path : {model::Path::kernels, model::Path::composed}) {
    OddShards odd(tests::world(), at::kFloat);
    train(odd, {.path = path});
    odd.for_each([&](int row, std::int64_t i, float value) {
      const bool decayed = odd.table.row(row).decayed;
      EXPECT_NEAR(value, plain(row, i, decayed), 1e-6) << "row " << row << ", element " << i;
    });
  }
}

TEST(Lion, HasALearningRatePerRow) {
  for (const auto path : {model::Path::kernels, model::Path::composed}) {
    model::ParameterTable faster = tests::odd_table();
    faster.rows[1].lr_ratio = 16;
    OddShards odd(tests::world(), at::kFloat, faster);
    train(odd, {.path = path});
    odd.for_each([&](int row, std::int64_t i, float value) {
      const bool decayed = odd.table.row(row).decayed;
      EXPECT_NEAR(value, plain(row, i, decayed, row == 1 ? 16 * lr : lr), 2e-6)
          << "row " << row << ", element " << i;
    });
  }
}

TEST(Lion, GivesTheSameBitsOnAnyNumberOfRanks) {
  OddShards alone(comm::Communicator(), at::kFloat), odd(tests::world(), at::kFloat);
  train(alone);
  train(odd);
  tests::expect_elements_of(alone.elements(), odd.elements());
}

TEST(Lion, PublishesRoundedWeightsAndKeepsTheExactOnes) {
  OddShards exact(tests::world(), at::kFloat), rounded(tests::world(), at::kBFloat16);
  train(exact);
  train(rounded);
  tests::expect_published_rounded(rounded, exact);
}

TEST(Lion, KeepsOneMomentInTheDtypeOfThePrecision) {
  OddShards odd(tests::world(), at::kFloat);
  const auto optimizer = train(odd, {.moments = core::DType::bf16});
  const auto kept = optimizer->kept(0);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].kind, "exp_avg");
  EXPECT_EQ(kept[0].values.scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace finetune::optimizers::lion_test
