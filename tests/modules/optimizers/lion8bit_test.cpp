// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "kernels/adamw8bit.hpp"
#include "modules/optimizers/golden_tensor.hpp"
#include "modules/optimizers/steps.hpp"
#include "optimizers/lion/kind.hpp"
#include "optimizers/lion8bit/kind.hpp"
#include "support/ranks.hpp"

namespace finetune::optimizers::lion8bit_test {
namespace {

using kernels::moment_block;
using tests::GoldenTensor;
using tests::OddShards;

/// Blocks across rows with and without decay, a last block that is short, and a unit of one block
/// that all ranks but one have nothing of.
model::ParameterTable table() {
  return {.rows = {{.name = "matrix", .shape = {41, 23}, .unit = 0},
                   {.name = "norm", .shape = {50}, .unit = 0, .decayed = false, .lr_ratio = 2},
                   {.name = "second", .shape = {31, 10}, .unit = 0},
                   {.name = "small", .shape = {7, 1}, .unit = 1}},
          .units = {"block", "small"}};
}

float gradient_of(int row, std::int64_t i, std::int64_t step) {
  return std::sin(static_cast<float>(5 * row + 3 * i + 2 * step)) *
         std::exp2(static_cast<float>(i % 9 - 4));
}

std::unique_ptr<optim::Optimizer> train(OddShards& odd, const optim::Kind& kind, int num_steps,
                                        const optim::OptimizerSetup& setup = {}) {
  auto optimizer = kind.make(tests::decaying_by(0.1), odd.table, odd.shards, setup);
  tests::take_steps(odd, *optimizer, num_steps, 0.01, 0.5, gradient_of);
  return optimizer;
}

TEST(Lion8bit, GivesTheSameBitsOnAnyNumberOfRanks) {
  for (const auto path : {model::Path::kernels, model::Path::composed}) {
    OddShards alone(comm::Communicator(), at::kFloat, table(), moment_block);
    const auto one = train(alone, lion8bit::kind(), 5, {.path = path});
    OddShards odd(tests::world(), at::kFloat, table(), moment_block);
    const auto optimizer = train(odd, lion8bit::kind(), 5, {.path = path});
    const auto state = tests::state_of(odd, *optimizer);
    EXPECT_EQ(state.size(), 6u);
    EXPECT_TRUE(state == tests::state_of(alone, *one));
  }
}

TEST(Lion8bit, IsLionInItsFirstStepOnEveryRow) {
  OddShards exact(tests::world(), at::kFloat, table(), moment_block);
  train(exact, lion::kind(), 1);
  for (const auto path : {model::Path::kernels, model::Path::composed}) {
    OddShards odd(tests::world(), at::kFloat, table(), moment_block);
    train(odd, lion8bit::kind(), 1, {.path = path});
    for (const int unit : odd.shards.trained_units())
      EXPECT_TRUE(at::allclose(odd.shards.master(unit), exact.shards.master(unit), 0, 1e-7));
  }
}

/// A sign may differ where a direction is about zero: few do.
TEST(Lion8bit, StaysCloseToLion) {
  OddShards exact(comm::Communicator(), at::kFloat, table(), moment_block);
  train(exact, lion::kind(), 20);
  OddShards odd(comm::Communicator(), at::kFloat, table(), moment_block);
  train(odd, lion8bit::kind(), 20);
  double other = 0, all = 0;
  for (const int unit : odd.shards.trained_units()) {
    const at::Tensor apart = (odd.shards.master(unit) - exact.shards.master(unit)).abs();
    other += (apart > 1e-5).sum().item<double>();
    all += static_cast<double>(apart.numel());
  }
  EXPECT_LT(other, 0.05 * all);
}

TEST(Lion8bit, PublishesRoundedWeightsAndLeavesPaddingAtZero) {
  OddShards odd(tests::world(), at::kBFloat16, table(), moment_block);
  for (const int unit : odd.shards.trained_units())
    odd.shards.gradient(unit).fill_(1);
  const auto optimizer = train(odd, lion8bit::kind(), 2);
  for (const int unit : odd.shards.trained_units()) {
    EXPECT_TRUE(at::equal(odd.shards.published(unit), odd.shards.master(unit).to(at::kBFloat16)));
    for (const at::Tensor& each : {odd.shards.master(unit), optimizer->state(unit, 0)})
      tests::expect_zero_padding(odd, unit, each);
  }
}

/// bitsandbytes has the same levels but the lowest, so codes differ by one here and there, and
/// with them the few weights whose direction is about zero.
TEST(Lion8bit, HasTheNumbersOfBitsandbytes) {
  const GoldenTensor golden("lion8bit.json");
  optim::OptimizerSettings by = tests::decaying_by(golden.number("weight_decay"));
  for (const char* key : {"beta1", "beta2"})
    by.numbers[key] = golden.number(key);
  OddShards odd(tests::world(), at::kFloat, GoldenTensor::table(), moment_block);
  const auto optimizer = lion8bit::kind().make(by, odd.table, odd.shards, {});
  golden.train(odd, *optimizer, [&](std::int64_t) { return golden.number("lr"); });
  const auto expected = golden.values("weight"), moments = golden.values("exp_avg");
  std::int64_t other = 0, all = 0;
  odd.for_each([&](int, std::int64_t i, float value) {
    ++all;
    other += std::abs(value - expected[static_cast<std::size_t>(i)]) > 1e-5f;
  });
  EXPECT_LE(static_cast<double>(other), 0.02 * static_cast<double>(all));
  const auto values_of = [&](int unit) {
    const at::Tensor codes = optimizer->state(unit, 0), scales = optimizer->state(unit, 1);
    at::Tensor values = at::empty({codes.size(0)}, at::kFloat);
    kernels::dequantize_moment(
        kernels::Moment::first,
        {codes.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(codes.size(0))},
        {scales.const_data_ptr<float>(), static_cast<std::size_t>(scales.size(0))},
        {values.data_ptr<float>(), static_cast<std::size_t>(values.size(0))});
    return values;
  };
  std::map<int, at::Tensor> kept;
  for (const int unit : odd.shards.trained_units())
    kept[unit] = values_of(unit);
  double squares = 0, apart = 0;
  odd.for_each(
      [&](int, std::int64_t i, float value) {
        const float theirs = moments[static_cast<std::size_t>(i)];
        squares += std::pow(theirs, 2);
        apart += std::pow(value - theirs, 2);
      },
      [&](int unit) { return kept.at(unit); });
  EXPECT_LE(std::sqrt(apart), 0.06 * std::sqrt(squares));
}

TEST(Lion8bit, KeepsAByteAndAScaleForABlock) {
  const plan::OptimizerFootprint& own = lion8bit::kind().footprint;
  EXPECT_EQ(own.state_bytes(1024, {}), 1024 + 4 * 4);
  EXPECT_EQ(own.block(), moment_block);
}

}  // namespace
}  // namespace finetune::optimizers::lion8bit_test
