// SPDX-License-Identifier: Apache-2.0
// bf16-true where updates are smaller than half of the last digit of most weights.
#include <gtest/gtest.h>

#include <numeric>

#include "parallel/trainer.hpp"

namespace finetune::tests::small_steps_test {
namespace {

/// Weights are about 0.7, with neighbours 0.002 to 0.004 away.
constexpr double small_lr = 4e-4;
constexpr std::int64_t num_steps = 200;

plan::Numbers bf16(bool is_true) {
  plan::Numbers numbers = tests::numbers(core::DType::bf16, plan::Determinism::topology);
  if (is_true) numbers.master = numbers.moments = core::DType::bf16;
  return numbers;
}

Arrangement on_all_ranks(const plan::Numbers& numbers) {
  return {.dp_shard = world().size(), .numbers = numbers};
}

/// The mean loss of the first and of the last twenty steps.
std::pair<double, double> losses(const Arrangement& setup) {
  Trainer trainer(world(), setup);
  std::vector<double> all;
  for (std::int64_t i = 0; i < num_steps; ++i)
    all.push_back(trainer.step(i, small_lr).loss);
  const auto mean = [](auto begin) { return std::accumulate(begin, begin + 20, 0.0) / 20; };
  return {mean(all.begin()), mean(all.end() - 20)};
}

TEST(SmallSteps, OfBf16TrueFollowThoseOfBf16Mixed) {
  const auto [before, mixed] = losses(on_all_ranks(bf16(false)));
  EXPECT_LT(mixed, before - 0.3) << "there is something to learn";
  for (const std::uint64_t seed : {0, 1, 2}) {
    Arrangement setup = on_all_ranks(bf16(true));
    setup.seed = seed;
    EXPECT_NEAR(losses(setup).second, mixed, 0.02 * mixed) << "seed " << seed;
  }
}

TEST(SmallSteps, AreLostInPartWhereBf16IsRoundedToNearest) {
  const double mixed = losses(on_all_ranks(bf16(false))).second;
  Arrangement setup = on_all_ranks(bf16(true));
  setup.rounding = optim::Rounding::nearest;
  EXPECT_GT(losses(setup).second, 1.1 * mixed);
}

TEST(SmallSteps, DependOnTheSeedAndOnNothingElse) {
  Arrangement setup = on_all_ranks(bf16(true));
  const auto expected = Trainer(world(), setup).train(5);
  EXPECT_TRUE(Trainer(world(), setup).train(5) == expected);
  setup.seed = 1;
  EXPECT_FALSE(Trainer(world(), setup).train(5).weights == expected.weights);
}

}  // namespace
}  // namespace finetune::tests::small_steps_test
