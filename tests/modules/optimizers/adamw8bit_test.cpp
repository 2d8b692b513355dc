// SPDX-License-Identifier: Apache-2.0
#include "optimizers/adamw8bit/adamw8bit.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "kernels/adamw8bit.hpp"
#include "optimizers/adamw/adamw.hpp"
#include "support/ranks.hpp"
#include "support/shards.hpp"

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
  OptimizerSettings settings;
  settings.numbers["beta2"] = 0.95;
  settings.weight_decay = 0.1;
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
    std::map<std::pair<int, std::int64_t>, float> gradient;
    odd.for_each([&](int row, std::int64_t i, float& weight) {
      gradient[{row, i}] = curvature_of(i) * (weight - target_of(row, i));
    });
    odd.for_each_gradient([&](int row, std::int64_t i, float& value) {
      value = gradient.at({row, i});
    });
    optimizer.step(odd.shards, step, 0.02, 0.5);
  }
  return losses;
}

/// The bytes of master weights and of what `optimizer` keeps, of all elements and blocks of a unit
/// in their order. Collective.
std::map<std::string, std::string> state_of(OddShards& odd, const Optimizer& optimizer) {
  std::map<std::string, std::string> state;
  for (const int unit : odd.shards.trained_units()) {
    const plan::UnitLayout& layout = odd.map.unit(unit);
    std::vector<StateTensor> all = optimizer.kept(unit);
    all.push_back({"master", odd.shards.master(unit)});
    for (const StateTensor& kept : all) {
      const std::string_view bytes(static_cast<const char*>(kept.values.const_data_ptr()),
                                   kept.values.nbytes());
      std::string& whole = state[layout.name + " " + kept.kind];
      for (const std::string& part : odd.shards.fsdp().all_gather_text(std::string(bytes)))
        whole += part;
      const std::int64_t count = (layout.count + kept.block - 1) / kept.block;
      whole.resize(static_cast<std::size_t>(count * kept.values.element_size()));
    }
  }
  return state;
}

TEST(AdamW8bit, GivesTheSameBitsOnAnyNumberOfRanks) {
  OddShards alone = make(comm::Communicator());
  AdamW8bit one(settings(), alone.table, alone.shards);
  train(alone, one, 5);
  OddShards odd = make(tests::world());
  AdamW8bit optimizer(settings(), odd.table, odd.shards);
  train(odd, optimizer, 5);
  const auto state = state_of(odd, optimizer);
  EXPECT_EQ(state.size(), 10u);
  EXPECT_TRUE(state == state_of(alone, one));
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
  for (const int unit : rounded.shards.trained_units()) {
    EXPECT_TRUE(at::equal(rounded.shards.master(unit), exact.shards.master(unit)));
    EXPECT_TRUE(
        at::equal(rounded.shards.published(unit), exact.shards.master(unit).to(at::kBFloat16)));
  }
}

TEST(AdamW8bit, LeavesPaddingAtZero) {
  OddShards odd = make(tests::world());
  AdamW8bit optimizer(settings(), odd.table, odd.shards);
  for (const int unit : odd.shards.trained_units())
    odd.shards.gradient(unit).fill_(1);
  train(odd, optimizer, 2);
  for (const int unit : odd.shards.trained_units()) {
    const plan::UnitLayout& layout = odd.map.unit(unit);
    const std::int64_t begin = odd.shards.fsdp().rank() * layout.shard_size;
    const std::int64_t used = std::clamp<std::int64_t>(layout.count - begin, 0, layout.shard_size);
    const auto padding = [&](const at::Tensor& t) {
      return t.narrow(0, used, layout.shard_size - used);
    };
    EXPECT_EQ(padding(odd.shards.master(unit)).count_nonzero().item<std::int64_t>(), 0);
    for (const StateTensor& kept : optimizer.kept(unit)) {
      if (kept.block == 1) {
        EXPECT_EQ(padding(kept.values).count_nonzero().item<std::int64_t>(), 0);
      }
    }
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
