// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding over shards: an element is rounded by its place in the model, whoever has it.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "optim/optimizer.hpp"
#include "plan/layout/bucket.hpp"
#include "registry.hpp"
#include "support/ranks.hpp"
#include "support/shards.hpp"

namespace finetune::optimizers::rounding_test {
namespace {

using optim::Optimizer;
using optim::OptimizerSettings;
using Weights = std::map<std::pair<int, std::int64_t>, float>;

/// Shards whose master weights and moments are bf16.
class NarrowShards {
 public:
  NarrowShards(const comm::Communicator& ranks, const OptimizerSettings& settings,
               std::uint64_t seed, const model::ParameterTable& table = tests::odd_table())
      : table_(table),
        map_(table_, ranks.size(),
             {.compute = core::DType::bf16, .block = settings.kind->footprint.block()}),
        shards_(table_, map_, shard::one_copy(ranks), options()),
        optimizer_(settings.kind->make(settings, table_, shards_, {core::DType::bf16, seed})) {
    for_each([](int row, std::int64_t i) { return tests::element_of(row, i); },
             [this](int unit) { return shards_.master(unit); });
    for (const int unit : shards_.trained_units()) {
      shards_.open_gradient(unit);
      shards_.reduce_gradient(unit);
    }
    shards_.finish_gradients();
    shards_.reset_gradients();
  }

  /// The weights of this rank's elements after `num_steps` steps of a tenth of their last digit.
  Weights train(std::int64_t num_steps) {
    for (std::int64_t step = 0; step < num_steps; ++step) {
      shards_.finish_gradients();
      for_each([](int row, std::int64_t i) { return (row + i) % 2 == 0 ? 1.0f : -1.0f; },
               [this](int unit) { return shards_.gradient(unit); });
      optimizer_->step(shards_, step, 1e-3, 1.0);
    }
    Weights weights;
    for (const int unit : shards_.trained_units()) {
      const at::Tensor master = shards_.master(unit).to(at::kFloat);
      for (const plan::ShardSlice& slice : map_.slices(unit, shards_.fsdp().rank()))
        for (std::int64_t i = 0; i < slice.count; ++i)
          weights[{slice.row, slice.tensor_offset + i}] =
              master[slice.shard_offset + i].item<float>();
    }
    return weights;
  }

 private:
  static shard::Options options() {
    shard::Options options;
    options.numbers.compute = options.numbers.master = options.numbers.moments = core::DType::bf16;
    return options;
  }
  template <typename Value, typename OfUnit>
  void for_each(const Value& value, const OfUnit& of_unit) {
    for (const int unit : shards_.trained_units()) {
      at::Tensor tensor = of_unit(unit);
      at::Tensor wide = tensor.to(at::kFloat).clone();
      for (const plan::ShardSlice& slice : map_.slices(unit, shards_.fsdp().rank()))
        for (std::int64_t i = 0; i < slice.count; ++i)
          wide[slice.shard_offset + i].fill_(value(slice.row, slice.tensor_offset + i));
      tensor.copy_(wide);
    }
  }

  model::ParameterTable table_;
  plan::ShardMap map_;
  shard::ModelShards shards_;
  std::unique_ptr<Optimizer> optimizer_;
};

OptimizerSettings named(const std::string& name) {
  OptimizerSettings settings;
  settings.name = name;
  settings.kind = optim::find_kind(modules::registry().optimizers, name);
  return settings;
}

class StochasticRounding : public testing::TestWithParam<const char*> {};

TEST_P(StochasticRounding, GivesTheSameBitsOnAnyNumberOfRanks) {
  const OptimizerSettings settings = named(GetParam());
  const Weights expected = NarrowShards({}, settings, 7).train(20);
  const Weights got = NarrowShards(tests::world(), settings, 7).train(20);
  for (const auto& [element, weight] : got)
    EXPECT_EQ(weight, expected.at(element)) << "row " << element.first << ", " << element.second;
}

TEST_P(StochasticRounding, DependsOnTheSeed) {
  const OptimizerSettings settings = named(GetParam());
  EXPECT_TRUE(NarrowShards({}, settings, 7).train(20) == NarrowShards({}, settings, 7).train(20));
  EXPECT_FALSE(NarrowShards({}, settings, 7).train(20) == NarrowShards({}, settings, 8).train(20));
}

TEST_P(StochasticRounding, MovesWeightsThatRoundingToNearestKeeps) {
  OptimizerSettings settings = named(GetParam());
  const Weights before = NarrowShards({}, settings, 7).train(0);
  EXPECT_FALSE(NarrowShards({}, settings, 7).train(20) == before);
  settings.rounding = optim::Rounding::nearest;
  EXPECT_TRUE(NarrowShards({}, settings, 7).train(20) == before);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, StochasticRounding,
                         testing::Values("adamw", "adamw8bit", "lion"));

/// adamw8bit's blocks follow the bucket.
TEST(StochasticAdamW, RoundsTheSameWhateverTheBucket) {
  const OptimizerSettings settings = named("adamw");
  const Weights expected = NarrowShards({}, settings, 7).train(20);
  const Weights whole = NarrowShards(tests::world(), settings, 7,
                                     plan::regroup(tests::odd_table(), plan::Bucket::whole))
                            .train(20);
  for (const auto& [element, weight] : whole)
    EXPECT_EQ(weight, expected.at(element)) << "row " << element.first << ", " << element.second;
}

}  // namespace
}  // namespace finetune::optimizers::rounding_test
