// SPDX-License-Identifier: Apache-2.0
#include "optimizers/adamw8bit/adamw8bit.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.hpp"
#include "kernels/adamw8bit.hpp"
#include "modules/optimizers/steps.hpp"
#include "optimizers/adamw/adamw.hpp"
#include "support/ranks.hpp"

namespace finetune::optimizers::adamw8bit_test {
namespace {

using adamw::AdamW;
using adamw8bit::AdamW8bit;
using kernels::moment_block;
using optim::Optimizer;
using optim::OptimizerSettings;
using optim::StateTensor;
using tests::OddShards;

/// Blocks across rows with and without decay, a last block that is short, and a unit of one block
/// that all ranks but one have nothing of.
model::ParameterTable table() {
  return {.rows = {{.name = "matrix", .shape = {41, 23}, .unit = 0},
                   {.name = "norm", .shape = {50}, .unit = 0, .decayed = false},
                   {.name = "second", .shape = {31, 10}, .unit = 0},
                   {.name = "small", .shape = {7, 1}, .unit = 1}},
          .units = {"block", "small"}};
}

OddShards make(const comm::Communicator& ranks, at::ScalarType dtype = at::kFloat) {
  return {ranks, dtype, table(), moment_block};
}

OptimizerSettings settings() {
  OptimizerSettings settings = tests::decaying_by(0.1);
  settings.numbers["beta2"] = 0.95;
  return settings;
}

float target_of(int row, std::int64_t i) {
  return 1.0f + std::sin(static_cast<float>(5 * row + 3 * i));
}
/// From 1/16 to 16: what is large and small in a block differs by the square of it.
float curvature_of(std::int64_t i) {
  return std::exp2(static_cast<float>(i % 9 - 4));
}

/// The mean of curvature * (weight - target)^2 / 2 over this rank's elements.
double loss_of(OddShards& odd) {
  double sum = 0;
  std::int64_t count = 0;
  odd.for_each([&](int row, std::int64_t i, float& weight) {
    sum += 0.5 * curvature_of(i) * std::pow(weight - target_of(row, i), 2);
    ++count;
  });
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

/// `num_steps` steps down that bowl, by the master weights; the losses before each.
std::vector<double> train(OddShards& odd, Optimizer& optimizer, std::int64_t num_steps) {
  std::vector<double> losses;
  for (std::int64_t step = 0; step < num_steps; ++step) {
    losses.push_back(loss_of(odd));
    const tests::Elements weights = odd.elements();
    tests::take_step(odd, optimizer, step, 0.02, 0.5, [&](int row, std::int64_t i) {
      return curvature_of(i) * (weights.at({row, i}) - target_of(row, i));
    });
  }
  return losses;
}

TEST(AdamW8bit, GivesTheSameBitsOnAnyNumberOfRanks) {
  OddShards alone = make(comm::Communicator());
  AdamW8bit one(settings(), alone.table, alone.shards);
  train(alone, one, 5);
  OddShards odd = make(tests::world());
  AdamW8bit optimizer(settings(), odd.table, odd.shards);
  train(odd, optimizer, 5);
  const auto state = tests::state_of(odd, optimizer);
  EXPECT_EQ(state.size(), 10u);
  EXPECT_TRUE(state == tests::state_of(alone, one));
}

TEST(AdamW8bit, FollowsTheLossesOfFp32Moments) {
  OddShards exact = make(tests::world());
  AdamW wide(settings(), exact.table, exact.shards);
  const auto expected = train(exact, wide, 150);
  OddShards odd = make(tests::world());
  AdamW8bit optimizer(settings(), odd.table, odd.shards);
  const auto losses = train(odd, optimizer, 150);
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], expected[i], 0.02 * expected.front()) << "step " << i;
}

TEST(AdamW8bit, IsAdamWInItsFirstStep) {
  OddShards exact = make(tests::world());
  AdamW wide(settings(), exact.table, exact.shards);
  train(exact, wide, 1);
  OddShards odd = make(tests::world());
  AdamW8bit optimizer(settings(), odd.table, odd.shards);
  train(odd, optimizer, 1);
  for (const int unit : odd.shards.trained_units())
    EXPECT_TRUE(at::equal(odd.shards.master(unit), exact.shards.master(unit)));
}

/// Sums in other orders may end on two sides of the middle between two codes, so they drift apart
/// by parts of a step.
TEST(AdamW8bit, DoesAsAGpuWhatTheKernelDoes) {
  OddShards by_kernel = make(tests::world());
  AdamW8bit kernel(settings(), by_kernel.table, by_kernel.shards);
  train(by_kernel, kernel, 5);
  OddShards composed = make(tests::world(), at::kBFloat16);
  AdamW8bit other(settings(), composed.table, composed.shards, model::Path::composed);
  train(composed, other, 5);
  for (const int unit : composed.shards.trained_units()) {
    const at::Tensor master = composed.shards.master(unit);
    EXPECT_TRUE(at::allclose(master, by_kernel.shards.master(unit), 0, 1e-4));
    EXPECT_TRUE(at::equal(composed.shards.published(unit), master.to(at::kBFloat16)));
  }
}

TEST(AdamW8bit, PublishesRoundedWeightsAndKeepsTheExactOnes) {
  OddShards exact = make(tests::world());
  AdamW8bit of_exact(settings(), exact.table, exact.shards);
  train(exact, of_exact, 3);
  OddShards rounded = make(tests::world(), at::kBFloat16);
  AdamW8bit of_rounded(settings(), rounded.table, rounded.shards);
  train(rounded, of_rounded, 3);
  tests::expect_published_rounded(rounded, exact);
}

TEST(AdamW8bit, LeavesPaddingAtZero) {
  OddShards odd = make(tests::world());
  AdamW8bit optimizer(settings(), odd.table, odd.shards);
  for (const int unit : odd.shards.trained_units())
    odd.shards.gradient(unit).fill_(1);
  train(odd, optimizer, 2);
  for (const int unit : odd.shards.trained_units()) {
    tests::expect_zero_padding(odd, unit, odd.shards.master(unit));
    for (const StateTensor& kept : optimizer.kept(unit))
      if (kept.block == 1) tests::expect_zero_padding(odd, unit, kept.values);
  }
}

TEST(AdamW8bit, KeepsAQuarterOfTheBytes) {
  OddShards odd = make(tests::world());
  const AdamW8bit narrow(settings(), odd.table, odd.shards);
  const AdamW wide(settings(), odd.table, odd.shards);
  const auto bytes_of = [&](const Optimizer& optimizer) {
    std::size_t bytes = 0;
    for (const int unit : odd.shards.trained_units())
      for (const StateTensor& kept : optimizer.kept(unit))
        bytes += kept.values.nbytes();
    return bytes;
  };
  const auto elements = static_cast<std::size_t>(odd.map.shard_elements());
  EXPECT_EQ(bytes_of(wide), 8 * elements);
  EXPECT_EQ(bytes_of(narrow), 2 * elements + 8 * elements / 256);
}

TEST(AdamW8bit, TakesNoShardsThatCutItsBlocks) {
  OddShards odd(tests::world(), at::kFloat, table());
  EXPECT_THROW(AdamW8bit(settings(), odd.table, odd.shards), core::Error);
}

}  // namespace
}  // namespace finetune::optimizers::adamw8bit_test
