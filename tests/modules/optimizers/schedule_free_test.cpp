// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "modules/optimizers/golden_tensor.hpp"
#include "modules/optimizers/steps.hpp"
#include "optimizers/schedule_free/kind.hpp"
#include "support/ranks.hpp"

namespace finetune::optimizers::schedule_free_test {
namespace {

using optim::OptimizerSettings;
using tests::GoldenTensor;
using tests::OddShards;

constexpr std::int64_t warmup = 3, num_steps = 6;
constexpr double lr = 0.01, clip = 0.5, decay = 0.3, beta1 = 0.8, beta2 = 0.9, eps = 1e-4;

OptimizerSettings settings() {
  OptimizerSettings settings = tests::decaying_by(decay);
  settings.schedule = optim::LrSchedule::constant;
  settings.warmup_steps = warmup;
  settings.numbers = {{"beta1", beta1}, {"beta2", beta2}, {"eps", eps}};
  return settings;
}

double lr_of(std::int64_t step) {
  return lr * std::min(1.0, static_cast<double>(step + 1) / static_cast<double>(warmup));
}

std::unique_ptr<optim::Optimizer> train(OddShards& odd, const optim::OptimizerSetup& setup = {}) {
  auto optimizer = schedule_free::kind().make(settings(), odd.table, odd.shards, setup);
  for (std::int64_t step = 0; step < num_steps; ++step)
    tests::take_step(odd, *optimizer, step, lr_of(step), clip,
                     [&](int row, std::int64_t i) { return tests::wave(row, i, step); });
  return optimizer;
}

struct Plain {
  double x, y, z;
};

/// The published algorithm in double, for one element, with x kept: y between z and x.
Plain plain(int row, std::int64_t i, bool decayed, double ratio = 1) {
  double z = tests::element_of(row, i), x = z, v = 0, sum = 0;
  for (std::int64_t step = 0; step < num_steps; ++step) {
    const double y = (1 - beta1) * z + beta1 * x, rate = ratio * lr_of(step);
    const double g = clip * tests::wave(row, i, step);
    v = beta2 * v + (1 - beta2) * g * g;
    const double v_hat = v / (1 - std::pow(beta2, static_cast<double>(step + 1)));
    z -= rate * (g / (std::sqrt(v_hat) + eps) + (decayed ? decay * y : 0));
    sum += rate * rate;
    const double c = rate * rate / sum;
    // The package moves y towards the z before this step; with x kept that is the same.
    x = (1 - c) * x + c * z;
  }
  return {x, (1 - beta1) * z + beta1 * x, z};
}

/// Of all elements of this rank, those that are evaluated.
tests::Elements evaluated(OddShards& odd, const optim::Optimizer& optimizer) {
  optimizer.publish_other_weights(odd.shards);
  const tests::Elements all = odd.elements([&](int unit) { return odd.shards.published(unit); });
  odd.shards.publish_all();
  return all;
}

TEST(ScheduleFree, IsThePublishedAlgorithmOnEveryRow) {
  for (const auto path : {model::Path::kernels, model::Path::composed}) {
    OddShards odd(tests::world(), at::kFloat);
    const auto optimizer = train(odd, {.path = path});
    const auto decayed = [&](int row) { return odd.table.row(row).decayed; };
    odd.for_each([&](int row, std::int64_t i, float value) {
      EXPECT_NEAR(value, plain(row, i, decayed(row)).y, 2e-6) << "row " << row << ", " << i;
    });
    for (const auto& [element, value] : evaluated(odd, *optimizer)) {
      const auto& [row, i] = element;
      EXPECT_NEAR(value, plain(row, i, decayed(row)).x, 2e-6) << "row " << row << ", " << i;
    }
  }
}

TEST(ScheduleFree, HasALearningRatePerRow) {
  model::ParameterTable faster = tests::odd_table();
  faster.rows[1].lr_ratio = 4;
  OddShards odd(tests::world(), at::kFloat, faster);
  train(odd);
  odd.for_each([&](int row, std::int64_t i, float value) {
    const bool decayed = odd.table.row(row).decayed;
    EXPECT_NEAR(value, plain(row, i, decayed, row == 1 ? 4 : 1).y, 4e-6) << row << ", " << i;
  });
}

TEST(ScheduleFree, GivesTheSameBitsOnAnyNumberOfRanks) {
  OddShards alone(comm::Communicator(), at::kFloat), odd(tests::world(), at::kFloat);
  const auto one = train(alone), optimizer = train(odd);
  tests::expect_elements_of(alone.elements(), odd.elements());
  tests::expect_elements_of(evaluated(alone, *one), evaluated(odd, *optimizer));
}

TEST(ScheduleFree, EvaluatesRowsThatAreNotTrainedAsTheyAre) {
  model::ParameterTable some = tests::odd_table();
  some.rows[4].trained_rows = {2, 3};
  OddShards odd(tests::world(), at::kFloat, some);
  const auto optimizer = train(odd);
  for (const auto& [element, value] : evaluated(odd, *optimizer)) {
    const auto& [row, i] = element;
    if (row == 4 && (i < 2 || i >= 5)) {
      EXPECT_EQ(value, tests::element_of(row, i)) << i;
    }
  }
}

/// Evaluating must not move what is trained: its bits come back.
TEST(ScheduleFree, TrainsOnAsIfNothingHadBeenEvaluated) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    OddShards odd(tests::world(), dtype);
    const auto optimizer = train(odd);
    std::vector<at::Tensor> before;
    for (const int unit : odd.shards.trained_units())
      before.push_back(odd.shards.published(unit).clone());
    optimizer->publish_other_weights(odd.shards);
    odd.shards.publish_all();
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(at::equal(odd.shards.published(odd.shards.trained_units()[i]), before[i]));
  }
}

TEST(ScheduleFree, HasTheNumbersOfThePackage) {
  const GoldenTensor golden("schedule_free.json");
  OptimizerSettings by = tests::decaying_by(golden.number("weight_decay"));
  by.warmup_steps = static_cast<std::int64_t>(golden.number("warmup_steps"));
  for (const char* key : {"beta1", "beta2", "eps"})
    by.numbers[key] = golden.number(key);
  for (const auto path : {model::Path::kernels, model::Path::composed}) {
    OddShards odd(tests::world(), at::kFloat, GoldenTensor::table());
    const auto optimizer = schedule_free::kind().make(by, odd.table, odd.shards, {.path = path});
    golden.train(odd, *optimizer, [&](std::int64_t step) {
      return golden.number("lr") *
             std::min(1.0, static_cast<double>(step + 1) / golden.number("warmup_steps"));
    });
    const auto expect = [&](const char* what, const auto& of_unit) {
      const auto expected = golden.values(what);
      odd.for_each(
          [&](int, std::int64_t i, float value) {
            EXPECT_NEAR(value, expected[static_cast<std::size_t>(i)], 2e-6) << what << " " << i;
          },
          of_unit);
    };
    expect("y", [&](int unit) { return odd.shards.master(unit); });
    expect("z", [&](int unit) { return optimizer->state(unit, 0); });
    expect("exp_avg_sq", [&](int unit) { return optimizer->state(unit, 1); });
    const auto expected = golden.values("x");
    for (const auto& [element, value] : evaluated(odd, *optimizer))
      EXPECT_NEAR(value, expected[static_cast<std::size_t>(element.second)], 2e-6);
  }
}

}  // namespace
}  // namespace finetune::optimizers::schedule_free_test
