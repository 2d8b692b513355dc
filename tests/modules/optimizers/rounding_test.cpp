// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding over shards: an element is rounded by its place in the model, whoever has it.
#include <gtest/gtest.h>

#include "modules/optimizers/steps.hpp"
#include "plan/layout/bucket.hpp"
#include "registry.hpp"
#include "support/ranks.hpp"

namespace finetune::optimizers::rounding_test {
namespace {

using optim::OptimizerSettings;
using tests::Elements;

/// The weights of this rank's elements after `num_steps` steps of a tenth of their last digit;
/// these and the moments are bf16.
Elements train(const comm::Communicator& ranks, const OptimizerSettings& settings,
               std::uint64_t seed, std::int64_t num_steps = 20,
               const model::ParameterTable& table = tests::odd_table()) {
  shard::Options options = tests::computing_in(core::DType::bf16);
  options.numbers.master = options.numbers.moments = core::DType::bf16;
  tests::OddShards odd(ranks, options, table, settings.kind->footprint.block());
  const auto optimizer =
      settings.kind->make(settings, odd.table, odd.shards, {core::DType::bf16, seed});
  tests::take_steps(
      odd, *optimizer, num_steps, 1e-3, 1.0,
      [](int row, std::int64_t i, std::int64_t) { return (row + i) % 2 == 0 ? 1.0f : -1.0f; });
  return odd.elements();
}

OptimizerSettings named(const std::string& name) {
  OptimizerSettings settings;
  settings.name = name;
  settings.kind = optim::find_kind(modules::registry().optimizers, name);
  return settings;
}

class StochasticRounding : public testing::TestWithParam<const char*> {};

TEST_P(StochasticRounding, GivesTheSameBitsOnAnyNumberOfRanks) {
  const OptimizerSettings settings = named(GetParam());
  tests::expect_elements_of(train({}, settings, 7), train(tests::world(), settings, 7));
}

TEST_P(StochasticRounding, DependsOnTheSeed) {
  const OptimizerSettings settings = named(GetParam());
  EXPECT_TRUE(train({}, settings, 7) == train({}, settings, 7));
  EXPECT_FALSE(train({}, settings, 7) == train({}, settings, 8));
}

TEST_P(StochasticRounding, MovesWeightsThatRoundingToNearestKeeps) {
  OptimizerSettings settings = named(GetParam());
  const Elements before = train({}, settings, 7, 0);
  EXPECT_FALSE(train({}, settings, 7) == before);
  settings.rounding = optim::Rounding::nearest;
  EXPECT_TRUE(train({}, settings, 7) == before);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, StochasticRounding,
                         testing::Values("adamw", "adamw8bit", "lion"));

/// adamw8bit's blocks follow the bucket.
TEST(StochasticAdamW, RoundsTheSameWhateverTheBucket) {
  const OptimizerSettings settings = named("adamw");
  tests::expect_elements_of(train({}, settings, 7),
                            train(tests::world(), settings, 7, 20,
                                  plan::regroup(tests::odd_table(), plan::Bucket::whole)));
}

}  // namespace
}  // namespace finetune::optimizers::rounding_test
