// SPDX-License-Identifier: Apache-2.0
#include "shard/model_shards.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "support/ranks.hpp"
#include "support/shards.hpp"

namespace finetune::shard::model_shards_test {
namespace {

using tests::element_of;
using tests::OddShards;

/// The weight that every rank must see of a row.
at::Tensor expected_weight(const OddShards& odd, int row, at::ScalarType dtype) {
  const auto& shape = odd.table.rows[static_cast<std::size_t>(row)].shape;
  at::Tensor weight = at::empty(shape, at::kFloat);
  for (std::int64_t i = 0; i < weight.numel(); ++i)
    weight.data_ptr<float>()[i] = element_of(row, i);
  return weight.to(dtype);
}

class Gathered : public testing::TestWithParam<at::ScalarType> {};

TEST_P(Gathered, WeightsAreTheMasterWeightsOfAllRanks) {
  OddShards odd(tests::world(), GetParam());
  for (int row = 0; row < static_cast<int>(odd.table.rows.size()); ++row) {
    const int unit = odd.shards.unit_of(row);
    odd.shards.open(unit);
    const at::Tensor weight = odd.shards.weight({row, 1});
    EXPECT_EQ(weight.scalar_type(), GetParam());
    EXPECT_TRUE(at::equal(weight, expected_weight(odd, row, GetParam()))) << "row " << row;
    odd.shards.close(unit);
  }
}

TEST_P(Gathered, NeighboursAreReadAsOneMatrix) {
  OddShards odd(tests::world(), GetParam());
  odd.shards.open(0);
  const at::Tensor together = odd.shards.weight({0, 3});
  const at::Tensor one_by_one =
      at::cat({expected_weight(odd, 0, GetParam()), expected_weight(odd, 1, GetParam()),
               expected_weight(odd, 2, GetParam())});
  EXPECT_TRUE(at::equal(together, one_by_one));
  odd.shards.close(0);
}

TEST_P(Gathered, WeightsFollowWhatIsPublished) {
  OddShards odd(tests::world(), GetParam());
  for (const float factor : {2.0f, 3.0f}) {
    odd.for_each(
        [&](int row, std::int64_t i, float& value) { value = factor * element_of(row, i); });
    odd.shards.publish_all();
    odd.shards.open(1);
    const at::Tensor expected = (expected_weight(odd, 4, at::kFloat) * factor).to(GetParam());
    EXPECT_TRUE(at::equal(odd.shards.weight({4, 1}), expected));
    odd.shards.close(1);
  }
}

TEST_P(Gathered, UnitsStayOpenUntilTheLastClose) {
  OddShards odd(tests::world(), GetParam());
  odd.shards.open(0);
  odd.shards.open(0);
  odd.shards.open(1);
  odd.shards.close(0);
  EXPECT_TRUE(at::equal(odd.shards.weight({3, 1}), expected_weight(odd, 3, GetParam())));
  EXPECT_TRUE(at::equal(odd.shards.weight({4, 1}), expected_weight(odd, 4, GetParam())));
  odd.shards.close(1);
  odd.shards.close(0);
  EXPECT_THROW(odd.shards.weight({3, 1}), core::Error);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Gathered, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return info.param == at::kFloat ? "float" : "bfloat16";
                         });

TEST(ModelShards, PadWithZeros) {
  OddShards odd(tests::world(), at::kBFloat16);
  const plan::UnitLayout& unit = odd.map.units()[0];
  const std::int64_t begin = tests::world().rank() * unit.shard_size;
  for (std::int64_t i = std::max<std::int64_t>(0, unit.count - begin); i < unit.shard_size; ++i) {
    EXPECT_EQ(odd.shards.master(0)[i].item<float>(), 0);
    EXPECT_EQ(odd.shards.published(0)[i].item<float>(), 0);
  }
}

TEST(ModelShards, RefuseWhatWouldReadOrWriteNothing) {
  OddShards odd(tests::world(), at::kFloat);
  EXPECT_THROW(odd.shards.weight({0, 1}), core::Error) << "closed";
  EXPECT_THROW(odd.shards.close(0), core::Error) << "never opened";
  EXPECT_THROW(odd.shards.gradient({0, 1}), core::Error) << "closed";
  EXPECT_THROW(odd.shards.reduce_gradient(0), core::Error) << "never opened";
  odd.shards.open(0);
  EXPECT_THROW(odd.shards.publish(0), core::Error) << "open";
  odd.shards.close(0);
}

TEST(ModelShards, RefuseAMapForAnotherNumberOfRanks) {
  const model::ParameterTable table = tests::odd_table();
  const plan::ShardMap map(table, tests::world().size() + 1);
  EXPECT_THROW(ModelShards(table, map, one_copy(tests::world()), {}), core::Error);
}

}  // namespace
}  // namespace finetune::shard::model_shards_test
