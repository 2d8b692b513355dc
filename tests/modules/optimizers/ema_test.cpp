// SPDX-License-Identifier: Apache-2.0
// The mean of the weights that every optimizer can keep.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "modules/optimizers/steps.hpp"
#include "registry.hpp"
#include "support/ranks.hpp"

namespace finetune::optimizers::ema_test {
namespace {

using tests::Elements;
using tests::OddShards;

constexpr double decay = 0.8, lr = 0.01;

/// A run that notes its weights after each update.
struct NotedRun {
  OddShards odd;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<Elements> weights = {};

  NotedRun(const comm::Communicator& ranks, const optim::Kind& kind,
           at::ScalarType dtype = at::kFloat, model::Path path = model::Path::kernels)
      : odd(ranks, dtype, tests::odd_table(), kind.footprint.block()),
        optimizer(kind.make({}, odd.table, odd.shards, {.path = path})) {
    optimizer->keep_ema(odd.shards, decay);
    for (std::int64_t step = 0; step < 5; ++step) {
      tests::take_step(odd, *optimizer, step, lr, 1,
                       [&](int row, std::int64_t i) { return tests::wave(row, i, step); });
      weights.push_back(odd.elements());
    }
  }

  Elements mean() {
    return odd.elements([&](int unit) { return optimizer->kept(unit).back().values; });
  }
};

const std::vector<optim::Kind>& kinds() {
  return modules::registry().optimizers;
}

TEST(Ema, IsTheWeightedMeanOfTheWeightsOfAllUpdates) {
  for (const optim::Kind& kind : kinds()) {
    for (const auto path : {model::Path::kernels, model::Path::composed}) {
      NotedRun run(tests::world(), kind, at::kFloat, path);
      for (const auto& [element, value] : run.mean()) {
        double sum = 0, weight = 0;
        for (std::size_t i = 0; i < run.weights.size(); ++i) {
          const double of_this = std::pow(decay, static_cast<double>(run.weights.size() - 1 - i));
          sum += of_this * run.weights[i].at(element);
          weight += of_this;
        }
        EXPECT_NEAR(value, sum / weight, 1e-6) << kind.name() << ", row " << element.first;
      }
    }
  }
}

TEST(Ema, HasTheSameBitsOnAnyRanksAndByCompositions) {
  for (const optim::Kind& kind : kinds()) {
    const Elements alone = NotedRun(comm::Communicator(), kind).mean();
    tests::expect_elements_of(alone, NotedRun(tests::world(), kind).mean(), kind.name());
  }
}

TEST(Ema, AfterOneUpdateIsTheWeights) {
  OddShards odd(tests::world(), at::kFloat);
  const auto optimizer = kinds().front().make({}, odd.table, odd.shards, {});
  optimizer->keep_ema(odd.shards, 0.999);
  tests::take_step(odd, *optimizer, 0, lr, 1, [](int, std::int64_t) { return 0.3f; });
  for (const int unit : odd.shards.trained_units())
    EXPECT_TRUE(at::equal(optimizer->kept(unit).back().values, odd.shards.master(unit)));
}

TEST(Ema, IsOneMoreStateInFp32) {
  const optim::Kind& kind = kinds().front();
  OddShards odd(tests::world(), at::kFloat);
  const auto optimizer = kind.make({}, odd.table, odd.shards, {.moments = core::DType::bf16});
  EXPECT_FALSE(optimizer->has_other_weights());
  optimizer->keep_ema(odd.shards, 0.5);
  EXPECT_TRUE(optimizer->has_other_weights());
  for (const int unit : odd.shards.trained_units()) {
    const auto kept = optimizer->kept(unit);
    ASSERT_EQ(kept.size(), kind.footprint.states.size() + 1);
    EXPECT_EQ(kept.back().kind, plan::ema_state);
    EXPECT_EQ(kept.back().block, 1);
    EXPECT_EQ(kept.back().values.scalar_type(), at::kFloat);
    EXPECT_EQ(kept.back().values.sizes(), odd.shards.master(unit).sizes());
  }
}

/// Units are gathered from the mean, and then from the weights again, whose bits stay.
TEST(Ema, IsPublishedInThePlaceOfTheWeights) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    NotedRun run(tests::world(), kinds().front(), dtype);
    auto& shards = run.odd.shards;
    const Elements weights = run.weights.back();
    run.optimizer->publish_other_weights(shards);
    for (const int unit : shards.trained_units()) {
      EXPECT_TRUE(
          at::equal(shards.published(unit), run.optimizer->kept(unit).back().values.to(dtype)));
      // In bf16 both may be rounded to one number, and of shards of padding there is nothing else.
      const bool has_elements = shards.master(unit).count_nonzero().item<std::int64_t>() > 0;
      EXPECT_FALSE(dtype == at::kFloat && has_elements &&
                   at::equal(shards.published(unit), shards.master(unit)));
    }
    shards.publish_all();
    for (const int unit : shards.trained_units())
      EXPECT_TRUE(at::equal(shards.published(unit), shards.master(unit).to(dtype)));
    tests::expect_elements_of(weights, run.odd.elements());
  }
}

}  // namespace
}  // namespace finetune::optimizers::ema_test
