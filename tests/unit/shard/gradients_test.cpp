// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "plan/layout/bucket.hpp"
#include "support/ranks.hpp"
#include "support/shards.hpp"

namespace finetune::shard::gradients_test {
namespace {

using tests::OddShards;

/// On one node, or on two of which the second has what is left of two ranks.
enum class Nodes { one, two };

class GradientSums : public testing::TestWithParam<std::tuple<at::ScalarType, Nodes>> {
 protected:
  /// Adds `value` to every element of a row's open gradient as an op would.
  void write(model::RowRange rows, float value) {
    const model::GradientSlot slot = odd_.shards.gradient(rows);
    if (slot.accumulate) {
      at::Tensor(slot.tensor).add_(value);
    } else {
      at::Tensor(slot.tensor).fill_(value);
    }
  }

  /// One pass over unit 0 that writes `value` to the rows of `written`.
  void pass(const std::vector<model::RowRange>& written, float value) {
    odd_.shards.open_gradient(0);
    for (const model::RowRange& rows : written)
      write(rows, value);
    odd_.shards.reduce_gradient(0);
  }

  /// Every element of a row's sum, whichever rank keeps it.
  void expect_sum(int row, float expected) {
    odd_.for_each_gradient([&](int at_row, std::int64_t i, float value) {
      if (at_row != row) return;
      EXPECT_EQ(value, expected) << "row " << row << ", element " << i;
    });
  }

  const comm::Communicator& world_ = tests::world();
  const float num_ranks_ = static_cast<float>(world_.size());
  const float rank_ = static_cast<float>(world_.rank());
  const at::ScalarType dtype_ = std::get<0>(GetParam());
  OddShards odd_{std::get<1>(GetParam()) == Nodes::one
                     ? tests::world()
                     : tests::world().as_on_node(tests::world().rank() < 2 ? 0 : 1),
                 dtype_};
};

TEST_P(GradientSums, AddTheRanksElementByElement) {
  odd_.shards.open_gradient(0);
  for (const int row : {0, 1, 2, 3}) {
    at::Tensor slot = odd_.shards.gradient({row, 1}).tensor;
    for (std::int64_t i = 0; i < slot.numel(); ++i)
      slot.view(-1)[i].fill_(static_cast<float>(10 * row + i) + rank_);
  }
  odd_.shards.reduce_gradient(0);
  const float sum_of_ranks = num_ranks_ * (num_ranks_ - 1) / 2;
  odd_.for_each_gradient([&](int row, std::int64_t i, float value) {
    if (odd_.shards.unit_of(row) != 0) return;
    EXPECT_EQ(value, num_ranks_ * static_cast<float>(10 * row + i) + sum_of_ranks);
  });
}

TEST_P(GradientSums, TakeNeighboursAsOneMatrix) {
  pass({{0, 3}, {3, 1}}, 2);
  for (const int row : {0, 1, 2, 3})
    expect_sum(row, 2 * num_ranks_);
}

TEST_P(GradientSums, CountUnwrittenRowsAsZero) {
  // The buffers hold what other passes left in them.
  pass({{0, 3}, {3, 1}}, 5);
  odd_.shards.reset_gradients();
  pass({{3, 1}}, 2);
  for (const int row : {0, 1, 2})
    expect_sum(row, 0);
  expect_sum(3, 2 * num_ranks_);
}

TEST_P(GradientSums, GrowWithEachReduction) {
  pass({{0, 3}, {3, 1}}, 2);
  pass({{0, 3}}, 3);
  pass({{3, 1}}, 7);
  expect_sum(1, 5 * num_ranks_);
  expect_sum(3, 9 * num_ranks_);
}

TEST_P(GradientSums, TakeSeveralWritesOfOnePass) {
  pass({{3, 1}, {3, 1}, {3, 1}}, 2);
  expect_sum(3, 6 * num_ranks_);
}

TEST_P(GradientSums, BeginAnewAfterAReset) {
  pass({{0, 3}, {3, 1}}, 100);
  odd_.shards.reset_gradients();
  pass({{0, 3}, {3, 1}}, 1);
  expect_sum(0, num_ranks_);
  expect_sum(3, num_ranks_);
}

TEST_P(GradientSums, TakeRanksThatHaveNothing) {
  const bool is_idle = world_.rank() == world_.size() - 1 && world_.size() > 1;
  pass(is_idle ? std::vector<model::RowRange>{} : std::vector<model::RowRange>{{0, 3}, {3, 1}}, 4);
  const float expected = 4 * std::max(1.0f, num_ranks_ - 1);
  for (const int row : {0, 1, 2, 3})
    expect_sum(row, expected);
}

TEST_P(GradientSums, DoNotExistForFrozenUnits) {
  model::ParameterTable table = tests::odd_table();
  table.rows[3].trainable = false;
  OddShards odd(world_, dtype_, plan::regroup(table, plan::Bucket::block));
  const int frozen = odd.shards.unit_of(3), trained = odd.shards.unit_of(0);
  EXPECT_NE(frozen, trained);
  for (const int unit : {frozen, trained})
    odd.shards.open_gradient(unit);
  EXPECT_FALSE(odd.shards.gradient({3, 1}).tensor.defined());
  EXPECT_TRUE(odd.shards.trained({3, 1}).empty());
  at::Tensor(odd.shards.gradient({0, 3}).tensor).fill_(1);
  for (const int unit : {frozen, trained})
    odd.shards.reduce_gradient(unit);
  EXPECT_FALSE(odd.shards.master(frozen).defined());
  const auto& units = odd.shards.trained_units();
  EXPECT_EQ(std::find(units.begin(), units.end(), frozen), units.end());
  odd.for_each_gradient([&](int row, std::int64_t, float) { EXPECT_NE(row, 3); });
}

/// 1 + 1/512 does not fit into bfloat16, and neither does 256 + 1.
TEST_P(GradientSums, AreMadeInFloat) {
  pass({{0, 3}}, world_.rank() == 0 ? 1.0f : 1.0f / 512);
  expect_sum(0, 1 + (num_ranks_ - 1) / 512);
  odd_.shards.reset_gradients();
  pass({{0, 3}}, world_.rank() == 0 ? 256.0f : 0.0f);
  pass({{0, 3}}, world_.rank() == 0 ? 1.0f : 0.0f);
  expect_sum(0, 257);
}

TEST_P(GradientSums, HaveZerosForPadding) {
  pass({{0, 3}, {3, 1}}, 3);
  odd_.shards.finish_gradients();
  const at::Tensor gradient = odd_.shards.gradient(0);
  const plan::UnitLayout& unit = odd_.map.units()[0];
  const std::int64_t begin = world_.rank() * unit.shard_size;
  for (std::int64_t i = std::max<std::int64_t>(0, unit.count - begin); i < unit.shard_size; ++i)
    EXPECT_EQ(gradient[i].item<float>(), 0);
}

INSTANTIATE_TEST_SUITE_P(DtypesAndNodes, GradientSums,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16),
                                          testing::Values(Nodes::one, Nodes::two)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) == at::kFloat ? "float"
                                                                                    : "bfloat16") +
                                  (std::get<1>(info.param) == Nodes::one ? "OnOneNode"
                                                                         : "OnTwoNodes");
                         });

}  // namespace
}  // namespace finetune::shard::gradients_test
