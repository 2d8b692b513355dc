// SPDX-License-Identifier: Apache-2.0
// What all optimizers have in common: their descriptors tell the truth.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "core/dtype.hpp"
#include "optim/optimizer.hpp"
#include "registry.hpp"
#include "shard/options.hpp"
#include "support/optimizers.hpp"
#include "support/ranks.hpp"
#include "support/shards.hpp"

namespace finetune::optimizers::kinds_test {
namespace {

using optim::Kind;

const std::vector<Kind>& kinds() {
  return modules::registry().optimizers;
}

const Kind& named(const std::string& name) {
  return *optim::find_kind(kinds(), name);
}

TEST(Optimizers, KeepWhatTheirDescriptorsSay) {
  for (const Kind& kind : kinds()) {
    tests::OddShards odd(tests::world(), at::kFloat, tests::odd_table(), kind.footprint.block());
    for (const core::DType moments : {core::DType::f32, core::DType::bf16}) {
      const auto optimizer = kind.make({}, odd.table, odd.shards, {moments});
      plan::Numbers numbers;
      numbers.moments = moments;
      for (const int unit : odd.shards.trained_units()) {
        const auto kept = optimizer->kept(unit);
        ASSERT_EQ(kept.size(), kind.footprint.states.size()) << kind.name();
        std::int64_t bytes = 0;
        for (std::size_t i = 0; i < kept.size(); ++i) {
          const plan::OptimizerState& state = kind.footprint.states[i];
          EXPECT_EQ(kept[i].kind, state.kind);
          EXPECT_EQ(kept[i].block, state.block);
          EXPECT_EQ(kept[i].of, state.of);
          EXPECT_EQ(kept[i].values.scalar_type(), shard::to_aten(state.dtype_in(numbers)));
          EXPECT_EQ(kept[i].values.count_nonzero().item<std::int64_t>(), 0);
          bytes += static_cast<std::int64_t>(kept[i].values.nbytes());
        }
        EXPECT_EQ(bytes, kind.footprint.shard_bytes(odd.table, odd.map.unit(unit), numbers));
      }
    }
  }
}

/// `finetune verify` looks at a checkpoint without asking which optimizer wrote it.
TEST(Optimizers, MeanTheSameByAState) {
  std::map<std::string, bool> is_signed;
  for (const Kind& kind : kinds())
    for (const plan::OptimizerState& state : kind.footprint.states)
      EXPECT_EQ(is_signed.emplace(state.kind, state.is_signed).first->second, state.is_signed)
          << state.kind << " of " << kind.name();
}

TEST(Optimizers, AdviseOnesThatAreThereAndNeedLess) {
  for (const Kind& kind : kinds()) {
    if (kind.in_less_memory.empty()) continue;
    const Kind* lighter = optim::find_kind(kinds(), kind.in_less_memory);
    ASSERT_NE(lighter, nullptr) << kind.name();
    EXPECT_LT(lighter->footprint.state_bytes(4096, {}), kind.footprint.state_bytes(4096, {}));
  }
}

TEST(Optimizers, AgreeOnTheRangesOfTheirKeys) {
  const auto ends = [](const deck::Range<double>& r) {
    return std::tuple(r.min, r.max, r.above, r.below);
  };
  for (const Kind& kind : kinds())
    for (const Kind& other : kinds())
      for (const optim::OptimizerKey& key : kind.keys)
        for (const optim::OptimizerKey& same : other.keys)
          if (key.name == same.name) {
            EXPECT_EQ(ends(key.range), ends(same.range)) << key.name;
          }
}

TEST(Optimizers, OfPlansTestsAreThese) {
  for (const plan::OptimizerFootprint& expected : {tests::adamw(), tests::adamw8bit()}) {
    const plan::OptimizerFootprint& own = named(expected.name).footprint;
    EXPECT_EQ(own.label, expected.label);
    EXPECT_EQ(own.block(), expected.block());
    EXPECT_EQ(own.passes.composed_bytes, expected.passes.composed_bytes);
    EXPECT_EQ(own.passes.is_one_operation_in_fp32, expected.passes.is_one_operation_in_fp32);
    for (const core::DType moments : {core::DType::f32, core::DType::bf16}) {
      plan::Numbers numbers;
      numbers.moments = moments;
      EXPECT_EQ(own.state_bytes(1000, numbers), expected.state_bytes(1000, numbers));
    }
  }
}

}  // namespace
}  // namespace finetune::optimizers::kinds_test
